// Package lockbench holds what stands at the top of the repository for a reader and is needed by the program as well.
package lockbench

import _ "embed"

// SchemaSQL creates everything lockbench keeps in a database.
//
//go:embed schema.sql
var SchemaSQL string
