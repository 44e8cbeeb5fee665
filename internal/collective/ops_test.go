package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// transports run a world of n ranks over each implementation of Comm in this package.
var transports = map[string]func(ctx context.Context, n int, fn func(context.Context, Comm) error) error{
	"local": Launch,
	"links": launchLinks,
}

func onTransports(t *testing.T, n int, fn func(context.Context, Comm) error) {
	t.Helper()
	for name, launch := range transports {
		if err := launch(t.Context(), n, fn); err != nil {
			t.Errorf("%s, %d ranks: %v", name, n, err)
		}
	}
}

func TestReduceScatterAndAllGatherPartsAreAnAllReduce(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, length := range []int{0, 1, 4, 1001} {
			onTransports(t, n, func(ctx context.Context, c Comm) error {
				for _, op := range []Op{Sum, Mean, Max} {
					x := make([]float32, length)
					for i := range x {
						x[i] = value(c.Rank(), i)
					}
					whole := slices.Clone(x)
					if err := AllReduce(ctx, c, op, whole); err != nil {
						return err
					}
					part, err := ReduceScatter(ctx, c, op, x)
					if err != nil {
						return err
					}
					lo, hi := Part(length, c.Rank(), n)
					if !slices.Equal(part, whole[lo:hi]) {
						return fmt.Errorf("%v: part %v, want %v", op, part, whole[lo:hi])
					}
					if err := AllGatherParts(ctx, c, x); err != nil {
						return err
					}
					for i := range x {
						if x[i] != whole[i] || x[i] != joined(op, n, i) {
							return fmt.Errorf("%v: element %d is %v, want %v", op, i, x[i], whole[i])
						}
					}
				}
				return nil
			})
		}
	}
}

func TestBroadcastFloats(t *testing.T) {
	onTransports(t, 3, func(ctx context.Context, c Comm) error {
		for root := range 3 {
			x := []float32{float32(c.Rank()), 1, 2}
			if err := BroadcastFloats(ctx, c, root, x); err != nil {
				return err
			}
			if x[0] != float32(root) || x[2] != 2 {
				return fmt.Errorf("from rank %d: %v", root, x)
			}
		}
		if err := BroadcastFloats(ctx, c, 3, nil); err == nil {
			return errors.New("broadcast from a rank that is not there")
		}
		return nil
	})
}

func TestQueuedOperationsRunInOrder(t *testing.T) {
	onTransports(t, 3, func(ctx context.Context, c Comm) error {
		q := Queue{Comm: c}
		var handles []*Handle
		var all [][]float32
		for i := range 20 {
			all = append(all, []float32{float32(i + c.Rank())})
			handles = append(handles, q.AllReduce(ctx, Sum, Buffer{F32: all[i]}))
		}
		for i, h := range handles {
			if err := h.Wait(); err != nil || all[i][0] != float32(3*i+3) {
				return fmt.Errorf("operation %d: %v, %v", i, all[i], err)
			}
		}
		return q.Wait()
	})
}

func TestAQueueEndsWithItsFirstError(t *testing.T) {
	q, broken := Queue{Comm: Alone()}, errors.New("broken")
	ran := false
	q.Go(func(Comm) error { return broken })
	later := q.Go(func(Comm) error { ran = true; return nil })
	if err := later.Wait(); !errors.Is(err, broken) || ran {
		t.Errorf("an operation after a failed one: ran %v, %v", ran, err)
	}
	if err := q.Wait(); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := q.Wait(); err != nil {
		t.Error("the error came twice:", err)
	}
}

func TestTrafficCountsBytes(t *testing.T) {
	for name, launch := range transports {
		err := launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
			before := c.Traffic().Sent
			if err := AllReduce(ctx, c, Sum, make([]float32, 1000)); err != nil {
				return err
			}
			// Half of the numbers are sent twice, and the mesh adds headers.
			if sent := c.Traffic().Sent - before; sent < 4000 || sent > 4200 {
				return fmt.Errorf("all-reduce of 4000 bytes on two ranks sent %d", sent)
			}
			before = c.Traffic().Sent
			if _, err := ReduceScatter(ctx, c, Sum, make([]float32, 1000)); err != nil {
				return err
			}
			if sent := c.Traffic().Sent - before; sent < 2000 || sent > 2100 {
				return fmt.Errorf("reduce-scatter of 4000 bytes on two ranks sent %d", sent)
			}
			return Barrier(ctx, c)
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
