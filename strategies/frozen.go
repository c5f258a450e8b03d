package strategies

import (
	"net"
	"sync"
)

// frost stands for a process that can stop: its connections neither send nor deliver while it does, whatever its client's timers want.
type frost struct{ running sync.RWMutex }

// freeze stops the process until thaw is called.
func (f *frost) freeze() (thaw func()) {
	f.running.Lock()
	return f.running.Unlock
}

// await returns once the process runs.
func (f *frost) await() {
	f.running.RLock()
	defer f.running.RUnlock()
}

// over makes a connection one of the process's.
func (f *frost) over(c net.Conn) net.Conn { return &frozenConn{c, f} }

type frozenConn struct {
	net.Conn
	f *frost
}

func (c *frozenConn) Write(b []byte) (int, error) {
	c.f.await()
	return c.Conn.Write(b)
}

func (c *frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.await()
	return n, err
}
