//go:build mpi && cgo

package mpi

/*
#cgo pkg-config: ompi
#include <mpi.h>
#include <stdlib.h>

static MPI_Comm world;

static int heft_init(int *rank, int *size, int *threads) {
  int e = MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, threads);
  if (e) return e;
  *threads = *threads >= MPI_THREAD_MULTIPLE;
  if ((e = MPI_Comm_dup(MPI_COMM_WORLD, &world))) return e;
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world, rank);
  return MPI_Comm_size(world, size);
}
static int heft_send(const void *b, int n, int to, int tag, MPI_Request *r) { return MPI_Isend(b, n, MPI_BYTE, to, tag, world, r); }
static int heft_receive(void *b, int n, int from, int tag, MPI_Request *r) { return MPI_Irecv(b, n, MPI_BYTE, from, tag, world, r); }
static int heft_test(MPI_Request *r, int *done) { return MPI_Test(r, done, MPI_STATUS_IGNORE); }
// heft_probe looks for a message with a tag, from any rank where from is negative.
static int heft_probe(int from, int tag, int *found, int *source, int *n) {
  MPI_Status s;
  int e = MPI_Iprobe(from < 0 ? MPI_ANY_SOURCE : from, tag, world, found, &s);
  if (!e && *found) *source = s.MPI_SOURCE, e = MPI_Get_count(&s, MPI_BYTE, n);
  return e;
}
static void heft_text(int e, char *text, int *n) { MPI_Error_string(e, text, n); }
enum { HEFT_TEXT = MPI_MAX_ERROR_STRING };
*/
import "C"

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/heftai/heft/internal/collective"
)

// Built reports whether this build has MPI.
const Built = true

// The tags of messages. A message of Send is its length in 8 bytes and then its bytes in pieces.
const (
	length = 1 + iota
	piece
	fail // the rank has failed, or knows one that has: its number in 4 bytes and a text
	bye  // the rank has ended well
)

const (
	maxPiece = 1 << 30 // MPI counts bytes in an int
	maxText  = 4 << 10
	// patience bounds how long a failing rank tries to tell the others why.
	patience = 2 * time.Second
	// watching is how often the link looks for failures of other ranks.
	watching = 2 * time.Millisecond
)

// Link is a rank's end of MPI's world. Its methods are those of [collective.Link], and Close.
type Link struct {
	rank, size int
	fails      func(error)
	ends       chan bool // to the goroutine of watch: whether to finalize
	ended      chan struct{}

	mu      sync.Mutex
	failed  *collective.RankError
	failing chan struct{}
	left    []bool
	pinned  []*runtime.Pinner // memory of operations that never ended
}

var _ collective.Link = (*Link)(nil)

// Open joins the world that the launcher started, once in a process. It returns when all ranks have
// called it. onFail is called once, when the world has failed and before a call says so, from any
// goroutine. It must not call the link.
func Open(onFail func(error)) (*Link, error) {
	l := &Link{fails: onFail, ends: make(chan bool, 1), ended: make(chan struct{}), failing: make(chan struct{})}
	opened := make(chan error)
	go l.watch(opened)
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("mpi: %w", err)
	}
	return l, nil
}

// watch initialises MPI, looks for failures and farewells of the other ranks, and finalizes MPI on
// the same thread, as it demands.
func (l *Link) watch(opened chan<- error) {
	runtime.LockOSThread()
	defer close(l.ended)
	var rank, size, threads C.int
	if err := check(C.heft_init(&rank, &size, &threads)); err != nil {
		opened <- fmt.Errorf("initialise: %w", err)
		return
	}
	if threads == 0 {
		opened <- errors.New("got a library without MPI_THREAD_MULTIPLE, want one with it")
		return
	}
	l.rank, l.size, l.left = int(rank), int(size), make([]bool, size)
	opened <- nil
	ticker := time.NewTicker(watching)
	defer ticker.Stop()
	for {
		select {
		case finalize := <-l.ends:
			if finalize {
				C.MPI_Finalize()
			}
			return
		case <-ticker.C:
			l.look()
		}
	}
}

// look takes the messages of ranks that have failed or left.
func (l *Link) look() {
	if l.cause() != nil {
		return
	}
	if from, n, ok := probe(-1, fail); ok {
		text := make([]byte, n)
		if l.operate(nil, text, from, fail, receiving) != nil || n < 4 {
			l.lose(&collective.RankError{Rank: from, Err: errors.New("failed without a message")})
			return
		}
		l.lose(&collective.RankError{Rank: int(binary.LittleEndian.Uint32(text)), Err: errors.New(string(text[4:]))})
		return
	}
	if from, n, ok := probe(-1, bye); ok && l.operate(nil, make([]byte, n), from, bye, receiving) == nil {
		l.mu.Lock()
		l.left[from] = true
		l.mu.Unlock()
	}
}

// Rank returns this rank's number.
func (l *Link) Rank() int { return l.rank }

// Size returns the number of ranks.
func (l *Link) Size() int { return l.size }

// Send sends b to a rank.
func (l *Link) Send(ctx context.Context, to int, b []byte) error {
	err := l.operate(ctx, binary.LittleEndian.AppendUint64(nil, uint64(len(b))), to, length, sending)
	for err == nil && len(b) > 0 {
		n := min(len(b), maxPiece)
		err = l.operate(ctx, b[:n], to, piece, sending)
		b = b[n:]
	}
	return l.result(ctx, to, err)
}

// Receive fills b with the next message of a rank.
func (l *Link) Receive(ctx context.Context, from int, b []byte) error {
	var head [8]byte
	err := l.await(ctx, from)
	if err == nil {
		err = l.operate(ctx, head[:], from, length, receiving)
	}
	if n := binary.LittleEndian.Uint64(head[:]); err == nil && n != uint64(len(b)) {
		err = fmt.Errorf("sends a message of %d bytes, want %d", n, len(b))
	}
	for err == nil && len(b) > 0 {
		n := min(len(b), maxPiece)
		err = l.operate(ctx, b[:n], from, piece, receiving)
		b = b[n:]
	}
	return l.result(ctx, from, err)
}

// await returns when a message of a rank is there, or when there will be none.
func (l *Link) await(ctx context.Context, from int) error {
	return l.poll(ctx, func() (bool, error) {
		l.mu.Lock()
		left := l.left[from]
		l.mu.Unlock()
		if _, _, ok := probe(from, length); ok {
			return true, nil
		}
		if left {
			return false, collective.ErrLeft
		}
		return false, nil
	})
}

// result is what a call returns that ended with err: the failure of the world, whose cause may be peer's.
func (l *Link) result(ctx context.Context, peer int, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		l.Fail(context.Cause(ctx))
	} else {
		l.lose(&collective.RankError{Rank: peer, Err: err})
	}
	return l.cause()
}

// Fail tells the other ranks that this one has failed. An error that names a rank is that rank's.
func (l *Link) Fail(err error) {
	e := &collective.RankError{Rank: l.rank, Err: err}
	if known := (*collective.RankError)(nil); errors.As(err, &known) {
		e = known
	}
	l.lose(e)
}

// lose makes all calls return e, the first time that it is called, and tells the other ranks.
func (l *Link) lose(e *collective.RankError) {
	if !l.stop(e, l.fails) {
		return
	}
	text := binary.LittleEndian.AppendUint32(nil, uint32(e.Rank))
	text = append(text, e.Err.Error()[:min(len(e.Err.Error()), maxText)]...)
	l.tell(fail, text)
}

// stop makes all calls return e, after onStop knows of it. It reports whether it is the first to do so.
func (l *Link) stop(e *collective.RankError, onStop func(error)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return false
	}
	onStop(e)
	l.failed = e
	close(l.failing)
	return true
}

// tell sends a last message to all other ranks.
func (l *Link) tell(tag int, text []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for to := range l.size {
		if to != l.rank {
			_ = l.operate(ctx, text, to, tag, telling) // a rank that is gone hears nothing
		}
	}
}

// Close leaves the world: in order if err is nil, and then it waits for the other ranks to leave, too.
// Otherwise it is [Link.Fail]; the launcher ends the other processes when this one exits.
func (l *Link) Close(err error) {
	if err != nil {
		l.Fail(err)
	}
	quiet := l.stop(&collective.RankError{Rank: l.rank, Err: net.ErrClosed}, func(error) {})
	if quiet {
		l.tell(bye, nil)
	}
	l.ends <- quiet
	<-l.ended
}

func (l *Link) cause() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		return nil
	}
	return l.failed
}

// check is an error of MPI.
func check(e C.int) error {
	if e == 0 {
		return nil
	}
	var text [C.HEFT_TEXT]C.char
	var n C.int
	C.heft_text(e, &text[0], &n)
	return errors.New(C.GoStringN(&text[0], n))
}

// probe looks for a message with a tag from a rank, or from any rank if from is negative.
func probe(from, tag int) (source, n int, ok bool) {
	var found, at, bytes C.int
	err := check(C.heft_probe(C.int(from), C.int(tag), &found, &at, &bytes))
	return int(at), int(bytes), err == nil && found != 0
}

// kind is what an operation does, and whether it goes on after a failure.
type kind int

const (
	sending kind = iota
	receiving
	telling
)

// operate sends or receives one message. MPI has the memory of b until the operation ends. Without a
// context it takes a message that is there.
func (l *Link) operate(ctx context.Context, b []byte, peer, tag int, k kind) error {
	request := (*C.MPI_Request)(C.malloc(C.sizeof_MPI_Request))
	pinner, at := new(runtime.Pinner), unsafe.Pointer(unsafe.SliceData(b))
	if len(b) > 0 {
		pinner.Pin(at)
	}
	start := func() C.int { return C.heft_send(at, C.int(len(b)), C.int(peer), C.int(tag), request) }
	if k == receiving {
		start = func() C.int { return C.heft_receive(at, C.int(len(b)), C.int(peer), C.int(tag), request) }
	}
	err := check(start())
	if err == nil {
		done := C.int(0)
		poll := func() (bool, error) {
			err := check(C.heft_test(request, &done))
			return done != 0, err
		}
		if k == telling || ctx == nil {
			err = spin(ctx, nil, poll)
		} else {
			err = l.poll(ctx, poll)
		}
		if done == 0 { // MPI may still use the memory: the process is about to end
			l.mu.Lock()
			l.pinned = append(l.pinned, pinner)
			l.mu.Unlock()
			return err
		}
	}
	pinner.Unpin()
	C.free(unsafe.Pointer(request))
	return err
}

// poll calls f until it is done, the context ends or the world fails.
func (l *Link) poll(ctx context.Context, f func() (done bool, err error)) error {
	if err := l.cause(); err != nil {
		return err
	}
	if err := spin(ctx, l.failing, f); err != nil {
		return errors.Join(l.cause(), err)
	}
	return nil
}

// spin calls f until it is done. The pauses between calls grow to a tenth of a millisecond: MPI has no
// way to wait for one of several events.
func spin(ctx context.Context, failing <-chan struct{}, f func() (done bool, err error)) error {
	var ended <-chan struct{}
	if ctx != nil {
		ended = ctx.Done()
	}
	for i := 0; ; i++ {
		if done, err := f(); done || err != nil {
			return err
		}
		select {
		case <-ended:
			return context.Cause(ctx)
		case <-failing:
			return errors.New("the world has failed")
		default:
		}
		if i < 64 {
			runtime.Gosched()
		} else {
			time.Sleep(min(time.Duration(i)*time.Microsecond/2, 100*time.Microsecond))
		}
	}
}
