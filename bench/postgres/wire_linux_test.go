package postgres

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// wired returns both ends of a connection, the first of them a wire.
func wired(t *testing.T, network string) (*wire, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := newWire(near)
	if w == nil {
		t.Fatalf("a %s socket was not wrapped", network)
	}
	t.Cleanup(func() { w.Close(); far.Close() })
	return w, far
}

func onBoth(t *testing.T, f func(t *testing.T, w *wire, far net.Conn)) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) {
			w, far := wired(t, network)
			f(t, w, far)
		})
	}
}

func write(t *testing.T, w io.Writer, p []byte) {
	t.Helper()
	if n, err := w.Write(p); n != len(p) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

// echo answers each byte with itself until the connection ends.
func echo(far net.Conn) { _, _ = io.Copy(far, far) }

func TestWireExchanges(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		go echo(far)
		got := make([]byte, 100)
		for i := range 1000 {
			want := []byte{byte(i), byte(i >> 8), 1}
			w.hold()
			write(t, w, want)
			n, err := io.ReadFull(w, got[:len(want)])
			if err != nil || !bytes.Equal(got[:n], want) {
				t.Fatalf("exchange %d: %v, %v", i, got[:n], err)
			}
		}
	})
}

// What was put off goes out before a later write, and only a short request is put off.
func TestWireKeepsOrder(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		big := bytes.Repeat([]byte("b"), mostHeld+1)
		w.hold()
		write(t, w, []byte("a"))
		write(t, w, big)
		w.hold()
		write(t, w, big) // too long to be put off
		want := append([]byte("a"), append(bytes.Clone(big), big...)...)
		got := make([]byte, len(want))
		if _, err := io.ReadFull(far, got); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("read %d bytes that differ, %v", len(got), err)
		}
	})
}

// A socket whose buffer is full takes the request in pieces; the answer comes all the same.
func TestWireFullBuffer(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		sent := 0
		if err := w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		for chunk := bytes.Repeat([]byte("x"), 1000); ; { // until nothing more fits
			n, err := w.Conn.Write(chunk)
			sent += n
			if err != nil {
				break
			}
		}
		if err := w.SetWriteDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		request := bytes.Repeat([]byte("r"), mostHeld)
		w.hold()
		write(t, w, request)
		go func() {
			_, _ = io.CopyN(io.Discard, far, int64(sent))
			got := make([]byte, len(request))
			if _, err := io.ReadFull(far, got); err == nil && bytes.Equal(got, request) {
				_, _ = far.Write([]byte("ok"))
			}
			far.Close()
		}()
		if got, err := io.ReadAll(w); err != nil || string(got) != "ok" {
			t.Fatalf("answer %q, %v", got, err)
		}
	})
}

// Closing from another goroutine ends an exchange that waits, as aborting a run does.
func TestWireCloseWhileWaiting(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		arrived := make(chan struct{})
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 1)) // the request is out, so the exchange waits
			close(arrived)
		}()
		go func() {
			<-arrived
			w.Close()
		}()
		w.hold()
		write(t, w, []byte("?"))
		if _, err := w.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("Read after Close: %v", err)
		}
	})
}

func TestWireDeadline(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		if err := w.SetDeadline(time.Now().Add(time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		w.hold()
		write(t, w, []byte("?"))
		if _, err := w.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read past its deadline: %v", err)
		}
		if err := w.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go echo(far)
		w.hold()
		write(t, w, []byte("!"))
		got := make([]byte, 1)
		if _, err := io.ReadFull(w, got); err != nil {
			t.Fatalf("Read after the deadline was lifted: %v", err)
		}
	})
}

// The other side's end is an end, whether it comes before the request or instead of the answer.
func TestWireEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, w *wire, far net.Conn) {
		go func() {
			_, _ = io.ReadFull(far, make([]byte, 1))
			far.Close()
		}()
		w.hold()
		write(t, w, []byte("?"))
		if _, err := w.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Fatalf("Read = %v, not the end", err)
		}
		for range 2 { // over TCP the first write after the end still succeeds
			w.hold()
			write(t, w, []byte("?"))
			if n, err := w.Read(make([]byte, 1)); err == nil {
				t.Fatalf("Read = %d bytes after the end", n)
			}
		}
	})
}

func TestWireNeedsSocket(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if newWire(near) != nil {
		t.Fatal("a pipe was wrapped")
	}
	var none *wire
	none.hold() // must not fail where nothing can be put off
}
