package backlog

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A listener holds the connections of another listener until their request has arrived.
type listener struct {
	net.Listener
	limits Limits
	epoll  int      // descriptor of events of the held connections
	poll   *os.File // of epoll, for Go's scheduler

	mu      sync.Mutex
	changed sync.Cond
	waiting *waiting
	ready   []net.Conn // accepted and not held; they count like held ones
	last    int32      // the last id of a held connection
	hiccup  error      // of the other listener, for the next Accept
	failed  error      // of the other listener for good, or that this one is closed
	buffer  [peekBytes]byte
}

// Listen returns a listener that accepts the connections of l when their request has arrived. Small
// bodies are part of the request; see stateOf. If more than limits.Most connections wait, the
// listener closes the longest waiting one of the client with the most connections. Listen returns l
// if it is not a TCP listener.
func Listen(l net.Listener, limits Limits) (net.Listener, error) {
	if _, ok := l.(*net.TCPListener); !ok {
		return l, nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("backlog: epoll of new connections: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's scheduler waits for it
		return nil, fmt.Errorf("backlog: epoll of new connections: %w", errors.Join(err, unix.Close(fd)))
	}
	b := &listener{Listener: l, limits: limits, epoll: fd, poll: os.NewFile(uintptr(fd), "epoll"), waiting: newWaiting()}
	b.changed.L = &b.mu
	go b.accept()
	go b.watch()
	return b, nil
}

// Accept implements net.Listener.
func (b *listener) Accept() (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.ready) == 0 && b.hiccup == nil && b.failed == nil {
		b.changed.Wait()
	}
	if len(b.ready) == 0 {
		err := cmp.Or(b.hiccup, b.failed)
		b.hiccup = nil
		return nil, err
	}
	c := b.ready[0]
	b.ready = b.ready[1:]
	b.changed.Broadcast()
	return c, nil
}

// Close closes the listener and all connections that Accept has not returned.
func (b *listener) Close() error {
	err := b.Listener.Close() // Accept fails
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail(net.ErrClosed)
	for _, c := range b.ready {
		_ = c.Close() // its request was never read
	}
	b.ready, b.hiccup = nil, nil
	for h := b.waiting.longest(); h != nil; h = b.waiting.longest() {
		b.drop(h)
	}
	_ = b.poll.Close() // ends watch
	return err
}

func (b *listener) fail(err error) {
	if b.failed == nil {
		b.failed = err
	}
	b.changed.Broadcast()
}

// accept accepts connections until the listener is closed.
func (b *listener) accept() {
	var pause time.Duration
	for {
		c, err := b.Listener.Accept()
		if err == nil {
			pause = 0
			b.hold(c.(*net.TCPConn))
			continue
		}
		var temporary interface{ Temporary() bool } // as net/http decides
		lasting := !errors.As(err, &temporary) || !temporary.Temporary()
		b.mu.Lock()
		if b.hiccup = err; lasting {
			b.fail(err)
		}
		b.changed.Broadcast()
		b.mu.Unlock()
		if lasting {
			return
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// hold makes room for c and holds it until its request has arrived.
func (b *listener) hold(c *net.TCPConn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.makeRoom()
	if b.failed != nil {
		_ = c.Close() // its request was never read
		return
	}
	b.last++
	h := &held{conn: c, id: b.last, client: clientOf(c.RemoteAddr()), since: time.Now()}
	b.waiting.add(h)
	err := control(c, func(fd int) error {
		return unix.EpollCtl(b.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: arrives, Fd: h.id})
	})
	if err != nil {
		b.pass(h) // the server waits itself
		return
	}
	if b.look(h, false); b.waiting.longest() == h {
		b.setDeadline()
	}
}

// arrives is the event that more of a request, or its end, has arrived. It occurs once for each.
const arrives = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff

// makeRoom waits until one more connection may be held.
func (b *listener) makeRoom() {
	for b.failed == nil && b.waiting.len()+len(b.ready) >= b.limits.Most {
		h := b.waiting.victim()
		if h == nil { // the server accepts slowly
			b.changed.Wait()
			continue
		}
		if b.look(h, false); h.place == nil {
			continue // it was passed on, or is closed
		}
		left := b.limits.Grace - time.Since(h.since)
		if left <= 0 {
			b.drop(h)
			continue
		}
		timer := time.AfterFunc(left, func() { b.mu.Lock(); defer b.mu.Unlock(); b.changed.Broadcast() })
		b.changed.Wait()
		timer.Stop()
	}
}

// look passes h on if its request has arrived. ended means that nothing more arrives.
func (b *listener) look(h *held, ended bool) {
	n := 0
	err := control(h.conn, func(fd int) (err error) {
		n, _, err = unix.Recvfrom(fd, b.buffer[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return err
	})
	switch {
	case errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR):
	case err != nil || n == 0:
		b.drop(h)
	case ended:
		b.pass(h) // the server answers with an error
	default:
		s := stateOf(b.buffer[:n])
		if h.headed = s == headed; s == complete {
			b.pass(h)
		}
	}
}

// pass lets Accept return h.
func (b *listener) pass(h *held) {
	_ = control(h.conn, func(fd int) error { // an event of an unknown connection is ignored
		return unix.EpollCtl(b.epoll, unix.EPOLL_CTL_DEL, fd, nil)
	})
	b.waiting.remove(h)
	b.ready = append(b.ready, h.conn)
	b.changed.Broadcast()
}

// drop closes h.
func (b *listener) drop(h *held) {
	b.waiting.remove(h)
	_ = h.conn.Close() // its request was never read
	b.changed.Broadcast()
}

// watch looks at the connections of which more has arrived, until the listener is closed.
func (b *listener) watch() {
	var events [64]unix.EpollEvent
	raw, err := b.poll.SyscallConn()
	for err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		n := 0
		err = raw.Read(func(uintptr) bool {
			n, _ = unix.EpollWait(b.epoll, events[:], 0) // an interrupt is no event
			return n > 0
		})
		b.mu.Lock()
		for _, e := range events[:max(n, 0)] {
			if h := b.waiting.byID[e.Fd]; h != nil {
				b.look(h, e.Events&unix.EPOLLRDHUP != 0)
			}
		}
		b.expire()
		b.mu.Unlock()
	}
}

// expire ends the wait of the connections that were held for too long.
func (b *listener) expire() {
	if b.limits.Patience <= 0 {
		return
	}
	for h := b.waiting.longest(); h != nil && time.Since(h.since) >= b.limits.Patience; h = b.waiting.longest() {
		b.look(h, false) // after a pause of this process, the request may be there
		switch {
		case h.place == nil: // it was passed on, or is closed
		case h.headed:
			b.pass(h)
		default:
			b.drop(h)
		}
	}
	b.setDeadline()
}

// setDeadline wakes watch when the longest waiting connection expires.
func (b *listener) setDeadline() {
	var at time.Time
	if h := b.waiting.longest(); h != nil && b.limits.Patience > 0 {
		at = h.since.Add(b.limits.Patience)
	}
	_ = b.poll.SetReadDeadline(at) // fails when the listener is closed
}

// control calls f with the descriptor of c.
func control(c *net.TCPConn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}
