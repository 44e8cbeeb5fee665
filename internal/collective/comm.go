package collective

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
)

// Op says how AllReduce joins the ranks' numbers.
type Op int

const (
	Sum  Op = iota // in order of rank: ((x0 + x1) + x2) + …
	Mean           // Sum divided by the number of ranks
	Max            // elementwise; NaN wins
)

// String is the operation's name, as in "sum".
func (o Op) String() string {
	switch o {
	case Sum:
		return "sum"
	case Mean:
		return "mean"
	case Max:
		return "max"
	}
	return fmt.Sprintf("Op(%d)", int(o))
}

// Buffer holds the numbers of an operation: one of the two slices, the other nil.
type Buffer struct {
	F32 []float32
	F64 []float64
}

// Traffic counts the bytes of numbers and messages that a rank has exchanged with the others. Within
// one process nothing is sent; there it counts what a transport between processes would send.
type Traffic struct {
	Sent, Received int64
}

// Part returns the range of n elements that belongs to rank, where size ranks share them.
func Part(n, rank, size int) (lo, hi int) { return rank * n / size, (rank + 1) * n / size }

// Comm is one rank's end of a world. It is used by one goroutine at a time.
type Comm interface {
	// Rank counts from 0 to Size-1.
	Rank() int
	Size() int
	// AllReduce replaces x by the join of all ranks' x, the same on all of them. The
	// lengths and types must agree. After an error x holds anything.
	AllReduce(ctx context.Context, op Op, x Buffer) error
	// ReduceScatter joins all ranks' x as AllReduce does, but each rank gets only its own [Part].
	// The rest of x then holds anything. It sends half the bytes of AllReduce.
	ReduceScatter(ctx context.Context, op Op, x Buffer) error
	// AllGatherParts copies each rank's [Part] of x into every rank's x. AllReduce is
	// ReduceScatter followed by AllGatherParts.
	AllGatherParts(ctx context.Context, x Buffer) error
	// BroadcastFloats copies root's x into every rank's x.
	BroadcastFloats(ctx context.Context, root int, x Buffer) error
	// Traffic returns the bytes exchanged so far. Any goroutine may call it.
	Traffic() Traffic
	// AllGather returns what every rank gave, in order of rank. Lengths may differ.
	// The result is the caller's own copy.
	AllGather(ctx context.Context, b []byte) ([][]byte, error)
	// Broadcast returns root's b on every rank, as a copy; the others' b is ignored.
	Broadcast(ctx context.Context, root int, b []byte) ([]byte, error)
}

// ErrLeft is the error of a rank that returned while others still needed it.
var ErrLeft = errors.New("has left the world")

// RankError names the rank that made a world fail. All ranks get it from calls that cannot
// complete.
type RankError struct {
	Rank int
	Err  error
}

func (e *RankError) Error() string { return fmt.Sprintf("collective: rank %d: %v", e.Rank, e.Err) }

// Unwrap returns what failed, so that errors.Is finds a context's end.
func (e *RankError) Unwrap() error { return e.Err }

// AllReduce combines x over the ranks, in place.
func AllReduce[F float32 | float64](ctx context.Context, c Comm, op Op, x []F) error {
	switch x := any(x).(type) {
	case []float32:
		return c.AllReduce(ctx, op, Buffer{F32: x})
	case []float64:
		return c.AllReduce(ctx, op, Buffer{F64: x})
	}
	return nil
}

// ReduceScatter joins x over the ranks. It returns this rank's part, which is in x.
func ReduceScatter(ctx context.Context, c Comm, op Op, x []float32) ([]float32, error) {
	lo, hi := Part(len(x), c.Rank(), c.Size())
	return x[lo:hi], c.ReduceScatter(ctx, op, Buffer{F32: x})
}

// AllGatherParts copies each rank's part of x into every rank's x.
func AllGatherParts(ctx context.Context, c Comm, x []float32) error {
	return c.AllGatherParts(ctx, Buffer{F32: x})
}

// BroadcastFloats copies root's x into every rank's x.
func BroadcastFloats(ctx context.Context, c Comm, root int, x []float32) error {
	return c.BroadcastFloats(ctx, root, Buffer{F32: x})
}

// Barrier returns when all ranks have called it.
func Barrier(ctx context.Context, c Comm) error {
	_, err := c.AllGather(ctx, nil)
	return err
}

// AllGather returns every rank's x in order of rank. encoding/gob must be able to encode T.
func AllGather[T any](ctx context.Context, c Comm, x T) ([]T, error) {
	b, err := encode(x)
	if err != nil {
		return nil, fmt.Errorf("collective: gather: %w", err)
	}
	parts, err := c.AllGather(ctx, b)
	if err != nil {
		return nil, err
	}
	out := make([]T, len(parts))
	for r, p := range parts {
		if err := decode(p, &out[r]); err != nil {
			return nil, fmt.Errorf("collective: gather from rank %d: %w", r, err)
		}
	}
	return out, nil
}

// Broadcast returns root's x on every rank. encoding/gob must be able to encode T. An x that cannot
// be encoded is an error on all ranks.
func Broadcast[T any](ctx context.Context, c Comm, root int, x T) (T, error) {
	var zero T
	var b []byte
	var failed error
	if c.Rank() == root {
		if b, failed = encode(x); failed != nil {
			b = nil // no encoding is empty: the others see that there is nothing
		}
	}
	b, err := c.Broadcast(ctx, root, b)
	switch {
	case err != nil:
		return zero, err
	case failed != nil:
		return zero, fmt.Errorf("collective: broadcast: %w", failed)
	case len(b) == 0:
		return zero, fmt.Errorf("collective: rank %d could not encode its broadcast", root)
	case c.Rank() == root:
		return x, nil
	}
	if err := decode(b, &zero); err != nil {
		return zero, fmt.Errorf("collective: broadcast from rank %d: %w", root, err)
	}
	return zero, nil
}

// box lets gob carry any value, scalars and nil slices too, as a field.
type box[T any] struct{ V T }

func encode[T any](x T) ([]byte, error) {
	var w bytes.Buffer
	err := gob.NewEncoder(&w).Encode(box[T]{x})
	return w.Bytes(), err
}

func decode[T any](b []byte, x *T) error {
	var v box[T]
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(&v); err != nil {
		return err
	}
	*x = v.V
	return nil
}
