package train

import (
	"context"
	"fmt"
	"slices"

	"github.com/heftai/heft/internal/collective"
	"github.com/heftai/heft/internal/errtext"
	"github.com/heftai/heft/train/internal/nested"
)

// Array is a tensor without a tape, with the fields
//
//	Data  []float32 // in row-major order
//	Shape []int     // empty for a single number
type Array = nested.Array

// Gather joins every rank's arrays along the outermost dimension, in order of rank. x is an array
// (a *tensor.Tensor, an [Array], a slice of numbers), or slices, maps and structs of arrays. Shapes
// must be equal; [PadAcrossProcesses] makes them so. A single number becomes a vector with one
// entry per rank. In a world of one Gather returns x.
//
// Gather and its relatives are functions, because methods cannot have type parameters. All ranks
// must call them in the same order.
func Gather[T any](ctx context.Context, a *Accelerator, x T) (T, error) {
	if a.rank.Comm.Size() == 1 {
		_, err := nested.Map(x, func(l nested.Leaf) (nested.Leaf, error) { return l, nil })
		return x, wrap("gather", err)
	}
	out, err := nested.Map(x, func(l nested.Leaf) (nested.Leaf, error) { return nested.Gather(ctx, a.rank.Comm, l) })
	return out, wrap("gather", err)
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("train: %s: %w", what, errtext.Below("train", err))
}

// GatherObject joins every rank's lists, in order of rank. Objects are sent with encoding/gob.
func GatherObject[T any](ctx context.Context, a *Accelerator, xs []T) ([]T, error) {
	if a.rank.Comm.Size() == 1 {
		return xs, nil
	}
	all, err := collective.AllGather(ctx, a.rank.Comm, xs)
	if err != nil {
		return nil, fmt.Errorf("train: gather of objects: %w", err)
	}
	return slices.Concat(all...), nil
}

// PadOptions configure [PadAcrossProcesses]. The zero value appends zeros to the outermost
// dimension.
type PadOptions struct {
	// Dim is the dimension to pad. A negative one counts from the back. Arrays without that
	// dimension are returned unchanged.
	Dim int
	// Index is the number to pad with.
	Index float64
	// First pads at the start.
	First bool
}

// PadAcrossProcesses pads one dimension of every array to the longest on any rank. The other
// dimensions may differ.
func PadAcrossProcesses[T any](ctx context.Context, a *Accelerator, x T, o PadOptions) (T, error) {
	out, err := nested.Map(x, func(l nested.Leaf) (nested.Leaf, error) {
		return nested.Pad(ctx, a.rank.Comm, l, o.Dim, o.Index, o.First)
	})
	return out, wrap("pad across processes", err)
}

// Reduction determines how to combine the ranks' numbers.
type Reduction string

// The reductions. ReduceNone sums, as in Accelerate.
const (
	ReduceSum  Reduction = "sum"
	ReduceMean Reduction = "mean"
	ReduceMax  Reduction = "max"
	ReduceNone Reduction = "none"
)

// Reduce combines every rank's arrays element by element. All ranks get the result. Shapes must be
// equal. Integers are exact up to 2^53 and have no mean.
func Reduce[T any](ctx context.Context, a *Accelerator, x T, how Reduction) (T, error) {
	op, ok := map[Reduction]collective.Op{ReduceSum: collective.Sum, ReduceNone: collective.Sum,
		ReduceMean: collective.Mean, ReduceMax: collective.Max}[how]
	if !ok {
		var zero T
		return zero, fmt.Errorf("train: unknown reduction %q", how)
	}
	out, err := nested.Map(x, func(l nested.Leaf) (nested.Leaf, error) { return nested.Reduce(ctx, a.rank.Comm, l, op) })
	return out, wrap("reduce", err)
}

// Broadcast returns the arrays of rank from on every rank.
func Broadcast[T any](ctx context.Context, a *Accelerator, x T, from int) (T, error) {
	out, err := nested.Map(x, func(l nested.Leaf) (nested.Leaf, error) { return nested.Broadcast(ctx, a.rank.Comm, l, from) })
	return out, wrap("broadcast", err)
}

// BroadcastObject returns the object of rank from on every rank. It is sent with encoding/gob.
func BroadcastObject[T any](ctx context.Context, a *Accelerator, x T, from int) (T, error) {
	x, err := collective.Broadcast(ctx, a.rank.Comm, from, x)
	return x, wrap("broadcast", err)
}

// SplitBetweenProcesses returns this rank's part of x, which all ranks have: a contiguous part of a
// slice, of an array along its outermost dimension, or of each entry of a map whose entries have
// the same length. If the length does not divide, the first ranks get one entry more. With padding
// every rank gets the same number, filled up with the last entry of x. In a world of one it returns
// x.
func SplitBetweenProcesses[T any](a *Accelerator, x T, padding bool) (T, error) {
	if a.rank.Comm.Size() == 1 {
		return x, nil
	}
	part, err := nested.Split(x, a.rank.Comm.Rank(), a.rank.Comm.Size(), padding)
	return part, wrap("split between processes", err)
}
