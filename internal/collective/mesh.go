package collective

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"
)

// MaxMessage bounds the bytes that a rank takes from another in one AllGather or Broadcast. Numbers
// need no bound: both ranks know how many there are.
const MaxMessage = 1 << 30

// Link carries messages between the ranks of a world. [Over] makes a [Comm] of it.
//
// Messages from one rank to another arrive complete and in order. Send may be called for several
// ranks at once, and together with Receive; for one rank it is called by one goroutine at a time.
// When a rank fails or leaves, calls that wait for it return, with a [*RankError] that names it.
type Link interface {
	Rank() int
	Size() int
	// Send sends b to a rank. It must not keep b.
	Send(ctx context.Context, to int, b []byte) error
	// Receive fills b with the next message of a rank. It fails if that has another length.
	Receive(ctx context.Context, from int, b []byte) error
	// Fail tells the other ranks that this one has failed with err.
	Fail(err error)
}

// Over makes a Comm of messages. Every rank sends to every other one: each rank joins its part of an
// AllReduce, so that a rank sends and receives twice the numbers, whatever the size of the world.
// Each operation begins with a header by which ranks notice that they disagree.
func Over(l Link) Comm { return &mesh{link: l} }

type mesh struct {
	link           Link
	round          uint64
	failed         error
	sent, received atomic.Int64
}

var _ Comm = (*mesh)(nil)

func (m *mesh) Rank() int { return m.link.Rank() }
func (m *mesh) Size() int { return m.link.Size() }

// Traffic counts messages and headers.
func (m *mesh) Traffic() Traffic { return Traffic{m.sent.Load(), m.received.Load()} }

func (m *mesh) AllReduce(ctx context.Context, op Op, x Buffer) error {
	k := key{what: "all-reduce", op: op}
	if err := k.check(&x); err != nil {
		return err
	}
	if m.Size() == 1 {
		return nil
	}
	return m.run(func() error {
		if err := errors.Join(reduceOver(ctx, m, k, x.F32), reduceOver(ctx, m, k, x.F64)); err != nil {
			return err
		}
		k.what = "end of all-reduce"
		return errors.Join(spread(ctx, m, k, x.F32), spread(ctx, m, k, x.F64))
	})
}

func (m *mesh) ReduceScatter(ctx context.Context, op Op, x Buffer) error {
	k := key{what: "reduce-scatter", op: op}
	if err := k.check(&x); err != nil {
		return err
	}
	if m.Size() == 1 {
		return nil
	}
	return m.run(func() error {
		return errors.Join(reduceOver(ctx, m, k, x.F32), reduceOver(ctx, m, k, x.F64))
	})
}

func (m *mesh) AllGatherParts(ctx context.Context, x Buffer) error {
	k := key{what: "all-gather of parts"}
	if err := k.check(&x); err != nil {
		return err
	}
	return m.run(func() error {
		return errors.Join(spread(ctx, m, k, x.F32), spread(ctx, m, k, x.F64))
	})
}

func (m *mesh) BroadcastFloats(ctx context.Context, root int, x Buffer) error {
	k := key{what: "broadcast of numbers", root: root}
	if err := k.check(&x); err != nil {
		return err
	}
	if root < 0 || root >= m.Size() {
		return fmt.Errorf("collective: broadcast from rank %d of %d", root, m.Size())
	}
	return m.run(func() error {
		mine := func(int) []byte { return nil }
		if m.Rank() == root {
			mine = func(int) []byte { return floatBytes(x.F32, x.F64) }
		}
		return m.exchange(ctx, k, mine, func(from, n int) error {
			if from != root || from == m.Rank() {
				return nil
			}
			return m.link.Receive(ctx, from, floatBytes(x.F32, x.F64))
		})
	})
}

func (m *mesh) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	out := make([][]byte, m.Size())
	out[m.Rank()] = bytes.Clone(b)
	err := m.run(func() error {
		return m.exchange(ctx, key{what: "all-gather"}, func(int) []byte { return b }, func(from, n int) (err error) {
			if from != m.Rank() {
				out[from], err = m.message(ctx, from, n)
			}
			return err
		})
	})
	return out, err
}

func (m *mesh) Broadcast(ctx context.Context, root int, b []byte) ([]byte, error) {
	if root < 0 || root >= m.Size() {
		return nil, fmt.Errorf("collective: broadcast from rank %d of %d", root, m.Size())
	}
	mine := func(int) []byte { return nil }
	out := bytes.Clone(b)
	if m.Rank() == root {
		mine = func(int) []byte { return b }
	}
	err := m.run(func() error {
		return m.exchange(ctx, key{what: "broadcast", root: root}, mine, func(from, n int) (err error) {
			if from == root && from != m.Rank() {
				out, err = m.message(ctx, from, n)
			}
			return err
		})
	})
	return out, err
}

// message receives n bytes.
func (m *mesh) message(ctx context.Context, from, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	b := make([]byte, n)
	return b, m.link.Receive(ctx, from, b)
}

// run runs an operation. After an error the world stays failed, and the other ranks learn of it.
func (m *mesh) run(f func() error) error {
	if m.failed != nil {
		return m.failed
	}
	if err := f(); err != nil {
		if e := (*RankError)(nil); errors.As(err, &e) {
			err = e
		} else {
			err = &RankError{m.Rank(), err}
		}
		m.failed = err
		m.link.Fail(err)
	}
	return m.failed
}

// exchange sends a header and mine(rank) to every other rank, and calls take for each in order, with
// the length of what it sends.
func (m *mesh) exchange(ctx context.Context, k key, mine func(to int) []byte, take func(from, n int) error) error {
	if err := ctx.Err(); err != nil {
		return &RankError{m.Rank(), context.Cause(ctx)}
	}
	m.round++
	var wg sync.WaitGroup
	sends := make([]error, m.Size())
	for to := range m.Size() {
		if to == m.Rank() {
			continue
		}
		wg.Go(func() {
			b := mine(to)
			head := k.header(m.round, len(b))
			if sends[to] = m.link.Send(ctx, to, head[:]); sends[to] == nil && len(b) > 0 {
				sends[to] = m.link.Send(ctx, to, b)
			}
			m.sent.Add(int64(len(head) + len(b)))
		})
	}
	var failed error
	for from := range m.Size() {
		if from == m.Rank() {
			failed = take(from, 0)
		} else {
			failed = m.receive(ctx, k, from, take)
		}
		if failed != nil {
			m.link.Fail(failed) // or the sends may wait for ever
			break
		}
	}
	wg.Wait()
	return errors.Join(append([]error{failed}, sends...)...)
}

func (m *mesh) receive(ctx context.Context, k key, from int, take func(from, n int) error) error {
	var head [headerSize]byte
	if err := m.link.Receive(ctx, from, head[:]); err != nil {
		return err
	}
	round, other, n := parseHeader(head)
	if other != k || round != m.round {
		if hi, lo := max(from, m.Rank()), min(from, m.Rank()); hi == from {
			return &RankError{hi, fmt.Errorf("calls %v, while rank %d calls %v", other, lo, k)}
		} else {
			return &RankError{hi, fmt.Errorf("calls %v, while rank %d calls %v", k, lo, other)}
		}
	}
	if n > MaxMessage && (k.what == "all-gather" || k.what == "broadcast") {
		return &RankError{from, fmt.Errorf("sends a message of %d bytes, want at most %d", n, MaxMessage)}
	}
	m.received.Add(int64(headerSize + n))
	return take(from, n)
}

// reduceOver joins this rank's part of x over the ranks, in their order.
func reduceOver[F float32 | float64](ctx context.Context, m *mesh, k key, x []F) error {
	if x == nil && k.f32+k.f64 > 0 {
		return nil // the other slice is the one in use
	}
	lo, hi := Part(len(x), m.Rank(), m.Size())
	sum, next := make([]F, hi-lo), make([]F, hi-lo)
	err := m.exchange(ctx, k, func(to int) []byte {
		lo, hi := Part(len(x), to, m.Size())
		return viewBytes(x[lo:hi])
	}, func(from, n int) error {
		part := next
		if from == m.Rank() {
			part = x[lo:hi]
		} else if n > 0 {
			if err := m.link.Receive(ctx, from, viewBytes(next)); err != nil {
				return err
			}
		}
		if from == 0 {
			copy(sum, part)
		} else {
			join(k.op, sum, part)
		}
		return nil
	})
	if err != nil {
		return err
	}
	divide(k.op, sum, m.Size())
	copy(x[lo:hi], sum)
	return nil
}

// spread copies each rank's part of x to all ranks.
func spread[F float32 | float64](ctx context.Context, m *mesh, k key, x []F) error {
	if x == nil && k.f32+k.f64 > 0 {
		return nil
	}
	lo, hi := Part(len(x), m.Rank(), m.Size())
	return m.exchange(ctx, k, func(int) []byte { return viewBytes(x[lo:hi]) }, func(from, n int) error {
		if from == m.Rank() || n == 0 {
			return nil
		}
		lo, hi := Part(len(x), from, m.Size())
		return m.link.Receive(ctx, from, viewBytes(x[lo:hi]))
	})
}

func floatBytes(a []float32, b []float64) []byte {
	if a != nil {
		return viewBytes(a)
	}
	return viewBytes(b)
}

// viewBytes returns the memory of x. Ranks must have one byte order; the build of a world sees to
// that.
func viewBytes[F float32 | float64](x []F) []byte {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(x[0])))
}

const headerSize = 48

// operations are the numbers of operations in headers.
var operations = []string{"all-reduce", "end of all-reduce", "reduce-scatter", "all-gather of parts", "broadcast of numbers", "all-gather", "broadcast"}

// header encodes an operation, the count of operations so far, and the bytes that follow.
func (k key) header(round uint64, n int) (h [headerSize]byte) {
	for i, name := range operations {
		if name == k.what {
			h[0] = byte(i)
		}
	}
	h[1] = byte(k.op)
	binary.LittleEndian.PutUint32(h[4:], uint32(k.root))
	binary.LittleEndian.PutUint64(h[8:], uint64(k.f32))
	binary.LittleEndian.PutUint64(h[16:], uint64(k.f64))
	binary.LittleEndian.PutUint64(h[24:], round)
	binary.LittleEndian.PutUint64(h[32:], uint64(n))
	return h
}

// parseHeader reads a header. Values that no rank sends come back as an operation that agrees with
// none.
func parseHeader(h [headerSize]byte) (round uint64, k key, n int) {
	k.what = "an unknown operation"
	if int(h[0]) < len(operations) {
		k.what = operations[h[0]]
	}
	length := binary.LittleEndian.Uint64(h[32:])
	k.op, k.root = Op(h[1]), int(binary.LittleEndian.Uint32(h[4:]))
	k.f32, k.f64 = int(binary.LittleEndian.Uint64(h[8:])), int(binary.LittleEndian.Uint64(h[16:]))
	return binary.LittleEndian.Uint64(h[24:]), k, int(min(length, math.MaxInt64))
}
