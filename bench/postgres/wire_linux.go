package postgres

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// wire is a socket that writes a request and waits for its answer in one step. A [net.Conn] tries to read before it waits, which for
// an answer that the server has not even begun to work on is a wasted system call in every round trip.
//
// hold and the Read after it belong to the goroutine that uses the connection; everything else goes to the socket as it is, so that
// closing and deadlines work as on any other, also from another goroutine.
type wire struct {
	net.Conn
	raw  syscall.RawConn
	step func(fd uintptr) bool // w.exchange, made once

	held   bool   // the next Write is put off until the next Read
	queued []byte // what was put off

	// Of the exchange under way.
	sent bool
	into []byte
	n    int
	err  error
}

// newWire wraps a socket. It returns nil for a connection that is none, as under TLS.
func newWire(c net.Conn) *wire {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &wire{Conn: c, raw: raw}
	w.step = w.exchange
	return w
}

// mostHeld is the longest request that is put off; a longer one may not fit into the socket's buffer at once.
const mostHeld = 4096

// hold puts the next Write off until the next Read.
func (w *wire) hold() {
	if w != nil {
		w.held = true
	}
}

func (w *wire) Write(p []byte) (int, error) {
	held := w.held && len(p) <= mostHeld
	w.held = false
	if held {
		w.queued = append(w.queued, p...)
		return len(p), nil
	}
	if len(w.queued) > 0 {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	return w.Conn.Write(p)
}

// flush writes what was put off.
func (w *wire) flush() error {
	_, err := w.Conn.Write(w.queued)
	w.queued = w.queued[:0]
	return err
}

func (w *wire) Read(p []byte) (int, error) {
	if len(w.queued) == 0 || len(p) == 0 {
		return w.Conn.Read(p)
	}
	w.sent, w.into, w.n, w.err = false, p, 0, nil
	err := w.raw.Read(w.step)
	w.into = nil
	switch {
	case err != nil: // closed, or past a deadline
		w.queued = w.queued[:0]
		return 0, err
	case !w.sent: // the socket did not take all of it at once
		if err := w.flush(); err != nil {
			return 0, err
		}
		return w.Conn.Read(p)
	}
	return w.n, w.err
}

// exchange is called first to write, then each time there may be something to read. It reports whether it is done; if not, the
// goroutine waits for the socket to become readable. Anything that became readable after the write began ends that wait, so an answer
// cannot be missed.
//
// The system calls are raw: the socket never blocks, and telling the runtime about them would let it give the processor to another
// thread whenever the server's process, woken by the write, takes the CPU for a moment. That costs a thread switch for each attempt,
// on the very processors that the server needs.
func (w *wire) exchange(fd uintptr) bool {
	if !w.sent {
		n, errno := rawCall(syscall.SYS_WRITE, fd, w.queued)
		if errno != 0 || n < len(w.queued) {
			w.queued = w.queued[:copy(w.queued, w.queued[n:])]
			return true
		}
		w.sent, w.queued = true, w.queued[:0]
		return false
	}
	for {
		n, errno := rawCall(syscall.SYS_READ, fd, w.into)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return false
		case errno != 0:
			w.err = os.NewSyscallError("read", errno)
		case n == 0:
			w.err = io.EOF
		default:
			w.n = n
		}
		return true
	}
}

// rawCall reads into p or writes it, once. After an error n is 0.
func rawCall(call, fd uintptr, p []byte) (n int, errno syscall.Errno) {
	r, _, errno := syscall.RawSyscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(r), 0
}
