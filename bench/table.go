package bench

import (
	"math"
	"slices"
)

// Null stands for SQL NULL in a [Row]: every value lockbench races for is a bigint, so that a row is a few machine words and
// reading one allocates nothing.
const Null int64 = math.MinInt64

// MaxColumns is the largest number of value columns a [Table] may have.
const MaxColumns = 6

// Table describes a table of schema.sql to the strategies, which write their SQL from it.
type Table struct {
	Name    string   // without the schema
	Key     string   // the bigint primary key
	Columns []string // the bigint columns an operation reads and writes, in the order of [Row.Values]
	Version string   // the column that an optimistic writer counts up
	Fence   string   // the column that holds the fencing token of the last writer who had one; "" where a write's decision rests on other rows
	Group   string   // the column by which [Tx.List] reads; it has an index and is among Columns
	Claim   *Claim   // how a row can be claimed by an INSERT, where it can
	Free    *Cond    // what makes a row free for anybody, where "any row" makes sense
	Batched bool     // free rows are claimed several at a time, with [Tx.Claim]
	Inserts bool     // rows are added, with [Tx.Insert]
}

// Claim describes the table whose unique key makes an INSERT the claim to a row (see strategy unique).
type Claim struct {
	Table  string // without the schema
	Key    string // unique column that holds the key of the claimed row
	Column string // column that holds what [Claim.Value] of the row would hold
	Value  string // the column of the claimed table which the claim stands for
}

// Index returns the place of a column in [Row.Values]; it panics on a column the table does not have, which only a scenario's
// author can cause.
func (t *Table) Index(column string) int {
	i := slices.Index(t.Columns, column)
	if i < 0 {
		panic("table " + t.Name + " has no column " + column)
	}
	return i
}

// Row is a row as read or to be written.
type Row struct {
	Key     int64
	Version int64
	Values  [MaxColumns]int64 // in the order of Table.Columns
}

// Relation compares a column with an operand.
type Relation int

// The relations a guard may use.
const (
	Always Relation = iota // no condition: takes neither column nor operand
	IsNull                 // takes no operand
	Equal
	AtLeast
)

// Cond is a condition on a row as data, so that a strategy can put it into a WHERE clause. Operand is the place of the value it
// compares with among those given to [Tx.Apply].
type Cond struct {
	Column   string
	Relation Relation
	Operand  int
	Or       *Cond // this condition or that one
}

// Action is what a [Step] does with its operand.
type Action int

// The actions.
const (
	Set Action = iota
	Add
	Subtract
)

// Step changes one column.
type Step struct {
	Column  string
	Action  Action
	Operand int
}

// Change is a guarded change of one row: rule and write in a form that the server can decide inside one statement.
type Change struct {
	Table    *Table
	Guard    Cond
	Steps    []Step
	Operands int
	Saga     bool // a step of an operation in several transactions, made by no other
	Once     bool // a compensation whose guard keeps it from undoing twice
}

// Fill says which rows a table holds before a trial: Rows rows with keys 1 to Rows.
type Fill struct {
	Table *Table
	Rows  int64
	Row   func(key int64) Row
}

// Stmt is one SQL statement of a strategy. Statements are compared by pointer and prepared once per connection.
type Stmt struct {
	Name    string // what it does in the strategy: read, write, lock …
	SQL     string
	Columns int // of the result; 0 for a statement whose affected rows count
}

// Rows receives a statement's result: Data holds its rows one after the other, each [Rows.Width] values wide. It is reused
// from statement to statement so that reading allocates nothing once warm.
type Rows struct {
	Width int
	Data  []int64
}

// Len returns the number of rows.
func (r *Rows) Len() int {
	if r.Width == 0 {
		return 0
	}
	return len(r.Data) / r.Width
}

// At returns the i-th row's values.
func (r *Rows) At(i int) []int64 { return r.Data[i*r.Width : (i+1)*r.Width] }
