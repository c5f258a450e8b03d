//go:build !linux

package postgres

import "net"

// wire saves system calls on Linux; elsewhere requests go through [net.Conn].
type wire struct{ net.Conn }

func newWire(net.Conn) *wire { return nil }

func (*wire) hold() {}
