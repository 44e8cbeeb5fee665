// Package tcp connects the ranks of a training world in several processes: a [collective.Link] over
// TCP connections from each rank to each other one.
//
// [Connect] meets the other ranks at rank 0's address. A peer must know the run's token, which is
// proved and not sent, and must be the same build with the same number of ranks. Data is neither
// encrypted nor authenticated after that: use a trusted network.
package tcp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/heftai/heft/internal/collective"
)

// The kinds of frames. A frame is a kind, the length in 8 bytes, and the bytes.
const (
	data byte = iota
	bye       // the rank has ended well
	fail      // the rank has failed, or knows one that has: its number in 4 bytes and a text
)

const (
	frameHead = 9
	maxText   = 4 << 10
	// patience bounds how long a failing rank tries to tell the others why.
	patience = 2 * time.Second
)

// Link is a rank's connections. Its methods are those of [collective.Link], and Close.
type Link struct {
	rank  int
	peers []*peer // by rank; nil for this one

	mu      sync.Mutex
	failed  *collective.RankError
	failing chan struct{}
	fails   func(error)
	readers sync.WaitGroup
}

var _ collective.Link = (*Link)(nil)

type peer struct {
	rank    int
	conn    net.Conn
	in      *bufio.Reader
	frames  chan uint64   // the length of a message, whose bytes are next in in
	resume  chan struct{} // they were taken
	left    chan struct{}
	writing sync.Mutex
}

// start begins to read from the peers. onFail is called once, when the world has failed and before a call
// says so. It must not call the link.
func (l *Link) start(onFail func(error)) {
	l.failing, l.fails = make(chan struct{}), onFail
	for _, p := range l.peers {
		if p != nil {
			p.frames, p.resume, p.left = make(chan uint64), make(chan struct{}), make(chan struct{})
			l.readers.Go(func() { l.read(p) })
		}
	}
}

// Rank returns this rank's number.
func (l *Link) Rank() int { return l.rank }

// Size returns the number of ranks.
func (l *Link) Size() int { return len(l.peers) }

// Address returns the remote address of a rank, or "" for this one.
func (l *Link) Address(rank int) string {
	if p := l.peers[rank]; p != nil {
		return p.conn.RemoteAddr().String()
	}
	return ""
}

// read announces the messages of p until it ends.
func (l *Link) read(p *peer) {
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(p.in, head[:]); err != nil {
			l.lose(&collective.RankError{Rank: p.rank, Err: fmt.Errorf("connection to %s lost: %w", p.conn.RemoteAddr(), err)})
			return
		}
		n := binary.LittleEndian.Uint64(head[1:])
		switch head[0] {
		case data:
			select {
			case p.frames <- n:
			case <-l.failing:
				return
			}
			select {
			case <-p.resume:
			case <-l.failing:
				return
			}
		case bye:
			close(p.left)
			return
		case fail:
			l.lose(p.readFailure(n))
			return
		default:
			l.lose(&collective.RankError{Rank: p.rank, Err: fmt.Errorf("%s sends an unknown frame %d", p.conn.RemoteAddr(), head[0])})
			return
		}
	}
}

// readFailure reads the frame of a failure, of n bytes.
func (p *peer) readFailure(n uint64) *collective.RankError {
	text := make([]byte, min(n, maxText+4))
	if _, err := io.ReadFull(p.in, text); err != nil || len(text) < 4 {
		return &collective.RankError{Rank: p.rank, Err: errors.New("failed without a message")}
	}
	return &collective.RankError{Rank: int(binary.LittleEndian.Uint32(text)), Err: errors.New(string(text[4:]))}
}

// lose makes all calls return e, the first time that it is called.
func (l *Link) lose(e *collective.RankError) {
	l.mu.Lock()
	if l.failed != nil {
		l.mu.Unlock()
		return
	}
	l.fails(e)
	l.failed = e
	close(l.failing)
	l.mu.Unlock()
	l.tell(fail, e)
}

func (l *Link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	return l.failed
}

// tell sends a last frame to all peers and ends the sending side.
func (l *Link) tell(kind byte, e *collective.RankError) {
	var text []byte
	if e != nil {
		text = binary.LittleEndian.AppendUint32(nil, uint32(e.Rank))
		text = append(text, e.Err.Error()[:min(len(e.Err.Error()), maxText)]...)
	}
	var wg sync.WaitGroup
	for _, p := range l.peers {
		if p == nil {
			continue
		}
		wg.Go(func() {
			_ = p.conn.SetWriteDeadline(time.Now().Add(patience)) // ends a Send that waits, too
			_ = p.write(kind, text)
			if c, ok := p.conn.(interface{ CloseWrite() error }); ok {
				_ = c.CloseWrite()
			}
			_ = p.conn.SetReadDeadline(time.Now().Add(patience))
		})
	}
	wg.Wait()
}

// write sends a frame.
func (p *peer) write(kind byte, b []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	var head [frameHead]byte
	head[0] = kind
	binary.LittleEndian.PutUint64(head[1:], uint64(len(b)))
	buffers := net.Buffers{head[:], b}
	_, err := buffers.WriteTo(p.conn)
	return err
}

// Send sends b to a rank.
func (l *Link) Send(ctx context.Context, to int, b []byte) error {
	if err := l.cause(); err != nil {
		return err
	}
	p := l.peers[to]
	stop := context.AfterFunc(ctx, func() { l.Fail(context.Cause(ctx)) })
	defer stop()
	err := p.write(data, b)
	if err == nil {
		return nil
	}
	select { // what the rank sent before it closed the connection says more than the failed write
	case <-p.left:
		err = collective.ErrLeft
	case <-l.failing:
		return l.cause()
	case <-time.After(patience):
	}
	l.lose(&collective.RankError{Rank: to, Err: err})
	return l.cause()
}

// Receive fills b with the next message of a rank.
func (l *Link) Receive(ctx context.Context, from int, b []byte) error {
	p := l.peers[from]
	select {
	case n := <-p.frames:
		if n != uint64(len(b)) {
			l.lose(&collective.RankError{Rank: from, Err: fmt.Errorf("sends a message of %d bytes, want %d", n, len(b))})
			return l.cause()
		}
	case <-p.left:
		l.lose(&collective.RankError{Rank: from, Err: collective.ErrLeft})
		return l.cause()
	case <-l.failing:
		return l.cause()
	case <-ctx.Done():
		l.Fail(context.Cause(ctx))
		return l.cause()
	}
	stop := context.AfterFunc(ctx, func() { l.Fail(context.Cause(ctx)) })
	defer stop()
	if _, err := io.ReadFull(p.in, b); err != nil {
		l.lose(&collective.RankError{Rank: from, Err: fmt.Errorf("connection to %s lost: %w", p.conn.RemoteAddr(), err)})
		return l.cause()
	}
	select {
	case p.resume <- struct{}{}:
	case <-l.failing:
	}
	return nil
}

// Fail tells the other ranks that this one has failed. An error that names a rank is that rank's.
func (l *Link) Fail(err error) {
	e := &collective.RankError{Rank: l.rank, Err: err}
	if known := (*collective.RankError)(nil); errors.As(err, &known) {
		e = known
	}
	l.lose(e)
}

// Close leaves the world: in order if err is nil, else as [Link.Fail]. It returns when the other
// ranks were told, after [patience] at the latest.
func (l *Link) Close(err error) {
	if err != nil {
		l.Fail(err)
	} else if l.cause() == nil {
		l.mu.Lock()
		quiet := l.failed == nil
		if quiet { // later calls, and the end of connections, are not failures of other ranks
			l.failed = &collective.RankError{Rank: l.rank, Err: net.ErrClosed}
			close(l.failing)
		}
		l.mu.Unlock()
		if quiet {
			l.tell(bye, nil)
		}
	}
	for _, p := range l.peers {
		if p != nil {
			_ = p.conn.SetReadDeadline(time.Now())
		}
	}
	l.readers.Wait()
	for _, p := range l.peers {
		if p != nil {
			_ = p.conn.Close()
		}
	}
}
