package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// local is a rank of a world inside this process.
type local struct {
	w    *world
	rank int
	sent atomic.Int64 // bytes that a transport would send, and as many received
}

var _ Comm = (*local)(nil)

func (l *local) Rank() int { return l.rank }
func (l *local) Size() int { return l.w.size }

func (l *local) AllGather(ctx context.Context, b []byte) ([][]byte, error) {
	offers, err := l.w.meet(ctx, l.rank, offer{key: key{what: "all-gather"}, bytes: bytes.Clone(b)}, false)
	if err != nil {
		return nil, err
	}
	l.sent.Add(int64((l.w.size - 1) * len(b)))
	out := make([][]byte, len(offers))
	for r, o := range offers {
		out[r] = slices.Clone(o.bytes)
	}
	return out, nil
}

func (l *local) Broadcast(ctx context.Context, root int, b []byte) ([]byte, error) {
	if root < 0 || root >= l.w.size {
		return nil, fmt.Errorf("collective: broadcast from rank %d of %d", root, l.w.size)
	}
	o := offer{key: key{what: "broadcast", root: root}}
	if l.rank == root {
		o.bytes = bytes.Clone(b)
	}
	offers, err := l.w.meet(ctx, l.rank, o, false)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(offers[root].bytes), nil
}

// Traffic counts what a transport between processes would send. Each rank receives as much as it
// sends.
func (l *local) Traffic() Traffic { return Traffic{l.sent.Load(), l.sent.Load()} }

// AllReduce gives each rank an equal part of the elements: it joins them in order of
// rank and writes the result to everybody's buffer. Nothing is copied or allocated by
// size, and no element is touched by two ranks.
func (l *local) AllReduce(ctx context.Context, op Op, x Buffer) error {
	return l.numbers(ctx, key{what: "all-reduce", op: op}, x, 2, func(f32 [][]float32, f64 [][]float64) {
		reducePart(op, f32, l.rank, f32[1:])
		reducePart(op, f64, l.rank, f64[1:])
	})
}

// ReduceScatter joins this rank's part in rank 0's buffer, which it owns there, and copies it.
func (l *local) ReduceScatter(ctx context.Context, op Op, x Buffer) error {
	return l.numbers(ctx, key{what: "reduce-scatter", op: op}, x, 1, func(f32 [][]float32, f64 [][]float64) {
		reducePart(op, f32, l.rank, f32[max(1, l.rank):l.rank+1])
		reducePart(op, f64, l.rank, f64[max(1, l.rank):l.rank+1])
	})
}

func (l *local) AllGatherParts(ctx context.Context, x Buffer) error {
	return l.numbers(ctx, key{what: "all-gather of parts"}, x, 1, func(f32 [][]float32, f64 [][]float64) {
		gatherParts(f32, l.rank)
		gatherParts(f64, l.rank)
	})
}

func (l *local) BroadcastFloats(ctx context.Context, root int, x Buffer) error {
	if root < 0 || root >= l.w.size {
		return fmt.Errorf("collective: broadcast from rank %d of %d", root, l.w.size)
	}
	return l.numbers(ctx, key{what: "broadcast of numbers", root: root}, x, 1, func(f32 [][]float32, f64 [][]float64) {
		if l.rank != root {
			copy(x.F32, f32[root])
			copy(x.F64, f64[root])
		}
	})
}

// numbers runs f on the buffers of all ranks. passes is how often a transport would send each part.
func (l *local) numbers(ctx context.Context, k key, x Buffer, passes int, f func([][]float32, [][]float64)) error {
	if err := k.check(&x); err != nil {
		return err
	}
	offers, err := l.w.meet(ctx, l.rank, offer{key: k, buf: x}, false)
	if err != nil {
		return err
	}
	f32 := make([][]float32, len(offers))
	f64 := make([][]float64, len(offers))
	for r, o := range offers {
		f32[r], f64[r] = o.buf.F32, o.buf.F64
	}
	f(f32, f64)
	l.sent.Add(int64(passes) * int64(4*len(x.F32)+8*len(x.F64)) * int64(l.w.size-1) / int64(l.w.size))
	// Every rank that came so far comes here too, without waiting for anything else,
	// and until it has, it may write to this rank's buffer.
	_, err = l.w.meet(ctx, l.rank, offer{key: key{what: "end of " + k.what}}, true)
	return err
}

// check reports an operation that cannot run on x, and completes k by its lengths.
func (k *key) check(x *Buffer) error {
	if k.op < Sum || k.op > Max {
		return fmt.Errorf("collective: unknown reduction %v", k.op)
	}
	if x.F32 != nil && x.F64 != nil {
		return errors.New("collective: " + k.what + " of both float32 and float64")
	}
	k.f32, k.f64 = len(x.F32), len(x.F64)
	return nil
}

// reducePart joins rank's part of all buffers in that of rank 0, and copies it into those of to.
func reducePart[F float32 | float64](op Op, ranks [][]F, rank int, to [][]F) {
	const block = 2048 // stays in the first cache while every rank's is joined to it
	for lo, end := Part(len(ranks[0]), rank, len(ranks)); lo < end; lo += block {
		hi := min(lo+block, end)
		sum := ranks[0][lo:hi]
		for _, x := range ranks[1:] {
			join(op, sum, x[lo:hi])
		}
		divide(op, sum, len(ranks))
		for _, x := range to {
			copy(x[lo:hi], sum)
		}
	}
}

// divide makes a sum a mean, if op is Mean.
func divide[F float32 | float64](op Op, sum []F, size int) {
	if op == Mean {
		for i := range sum {
			sum[i] /= F(size)
		}
	}
}

// gatherParts copies the parts of the other ranks into rank's buffer.
func gatherParts[F float32 | float64](ranks [][]F, rank int) {
	for r, x := range ranks {
		if lo, hi := Part(len(x), r, len(ranks)); r != rank {
			copy(ranks[rank][lo:hi], x[lo:hi])
		}
	}
}

func join[F float32 | float64](op Op, into, x []F) {
	x = x[:len(into)]
	if op == Max {
		for i := range into {
			into[i] = max(into[i], x[i])
		}
		return
	}
	for i := range into {
		into[i] += x[i]
	}
}
