package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAllReduceJoinsInOrderOfRank(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 7} {
		for _, length := range []int{0, 1, 2, 5, 1000} {
			t.Run(fmt.Sprintf("%d ranks, %d numbers", n, length), func(t *testing.T) {
				err := Launch(t.Context(), n, func(ctx context.Context, c Comm) error {
					for _, op := range []Op{Sum, Mean, Max} {
						x := make([]float32, length)
						for i := range x {
							x[i] = value(c.Rank(), i)
						}
						if err := AllReduce(ctx, c, op, x); err != nil {
							return err
						}
						for i := range x {
							if want := joined(op, n, i); x[i] != want {
								return fmt.Errorf("%v: element %d is %v, want %v", op, i, x[i], want)
							}
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// value has rounding errors that depend on the order of summation.
func value(rank, i int) float32 { return float32(math.Sin(float64(rank*31+i))) * float32(1+rank*rank) }

func joined(op Op, n, i int) float32 {
	v := value(0, i)
	for r := 1; r < n; r++ {
		if op == Max {
			v = max(v, value(r, i))
		} else {
			v += value(r, i)
		}
	}
	if op == Mean {
		v /= float32(n)
	}
	return v
}

func TestAllReduceOfFloat64(t *testing.T) {
	err := Launch(t.Context(), 3, func(ctx context.Context, c Comm) error {
		x := []float64{float64(c.Rank()), -1}
		if err := AllReduce(ctx, c, Mean, x); err != nil {
			return err
		}
		if x[0] != 1 || x[1] != -1 {
			return fmt.Errorf("mean is %v", x)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAllReduceMaxKeepsNaN(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
		x := []float32{float32(c.Rank())}
		if c.Rank() == 0 {
			x[0] = float32(math.NaN())
		}
		if err := AllReduce(ctx, c, Max, x); err != nil {
			return err
		}
		if x[0] == x[0] {
			return fmt.Errorf("max of NaN and 1 is %v", x[0])
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

type record struct {
	Name string
	IDs  []int32
}

func TestObjectsAreExchanged(t *testing.T) {
	err := Launch(t.Context(), 3, func(ctx context.Context, c Comm) error {
		mine := record{fmt.Sprint("r", c.Rank()), make([]int32, c.Rank())}
		got, err := AllGather(ctx, c, mine)
		if err != nil {
			return err
		}
		for r, x := range got {
			if x.Name != fmt.Sprint("r", r) || len(x.IDs) != r {
				return fmt.Errorf("from rank %d: %+v", r, x)
			}
		}
		one, err := Broadcast(ctx, c, 2, mine)
		if err != nil {
			return err
		}
		if one.Name != "r2" || len(one.IDs) != 2 {
			return fmt.Errorf("broadcast gave %+v", one)
		}
		none, err := Broadcast(ctx, c, 0, []int(nil))
		if err != nil || none != nil {
			return fmt.Errorf("broadcast of nil gave %v, %v", none, err)
		}
		return Barrier(ctx, c)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAValueThatCannotBeEncodedFailsOnAllRanks(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
		if _, err := Broadcast(ctx, c, 1, func() {}); err == nil {
			return errors.New("a function was broadcast")
		}
		return Barrier(ctx, c) // the world still works
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGatheredBytesAreCopies(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
		b := []byte{byte(c.Rank())}
		got, err := c.AllGather(ctx, b)
		if err != nil {
			return err
		}
		got[0][0], got[1][0], b[0] = 9, 9, 8
		again, err := c.AllGather(ctx, []byte{byte(c.Rank())})
		if err != nil {
			return err
		}
		if want := [][]byte{{0}, {1}}; !reflect.DeepEqual(again, want) {
			return fmt.Errorf("gathered %v, want %v", again, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAFailingRankReleasesTheOthers(t *testing.T) {
	broken := errors.New("out of paper")
	ended := make([]error, 4)
	err := Launch(t.Context(), 4, func(ctx context.Context, c Comm) error {
		if c.Rank() == 2 {
			return broken
		}
		ended[c.Rank()] = Barrier(ctx, c)
		return ended[c.Rank()]
	})
	checkRank(t, err, 2, broken)
	for _, r := range []int{0, 1, 3} {
		checkRank(t, ended[r], 2, broken)
	}
}

func TestARankThatReturnsEarlyReleasesTheOthers(t *testing.T) {
	for _, late := range []bool{false, true} {
		err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
			if c.Rank() == 0 {
				if late {
					time.Sleep(5 * time.Millisecond)
				}
				return nil
			}
			if !late {
				time.Sleep(5 * time.Millisecond)
			}
			return AllReduce(ctx, c, Sum, []float32{1})
		})
		checkRank(t, err, 0, ErrLeft)
	}
}

func TestARankThatEndsItsGoroutineReleasesTheOthers(t *testing.T) {
	err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
		if c.Rank() == 1 {
			runtime.Goexit()
		}
		return Barrier(ctx, c)
	})
	checkRank(t, err, 1, ErrLeft)
}

func TestAContextsEndReleasesTheOthers(t *testing.T) {
	err := Launch(t.Context(), 3, func(ctx context.Context, c Comm) error {
		if c.Rank() == 0 { // never comes, and needs no one
			<-ctx.Done()
			return nil
		}
		if c.Rank() == 1 {
			var cancel func()
			ctx, cancel = context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
		}
		return Barrier(ctx, c)
	})
	checkRank(t, err, 1, context.DeadlineExceeded)
}

func TestTheWorldsContextEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Launch(ctx, 2, func(ctx context.Context, c Comm) error { return Barrier(ctx, c) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled world ended with %v", err)
	}
}

func checkRank(t *testing.T, err error, rank int, cause error) {
	t.Helper()
	var e *RankError
	if !errors.As(err, &e) || e.Rank != rank || !errors.Is(err, cause) {
		t.Errorf("got %v, want rank %d: %v", err, rank, cause)
	}
}

func TestRanksWithDifferentCallsGetAnError(t *testing.T) {
	for name, call := range map[string]func(context.Context, Comm) error{
		"lengths": func(ctx context.Context, c Comm) error {
			return AllReduce(ctx, c, Sum, make([]float32, 4+c.Rank()))
		},
		"roots": func(ctx context.Context, c Comm) error {
			_, err := c.Broadcast(ctx, c.Rank(), nil)
			return err
		},
		"types": func(ctx context.Context, c Comm) error {
			if c.Rank() == 0 {
				return AllReduce(ctx, c, Sum, make([]float32, 4))
			}
			return AllReduce(ctx, c, Sum, make([]float64, 4))
		},
		"operations": func(ctx context.Context, c Comm) error {
			if c.Rank() == 0 {
				return Barrier(ctx, c)
			}
			return AllReduce(ctx, c, Max, make([]float32, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make([]error, 2)
			err := Launch(t.Context(), 2, func(ctx context.Context, c Comm) error {
				ended[c.Rank()] = call(ctx, c)
				return ended[c.Rank()]
			})
			for _, err := range append(ended, err) {
				if err == nil || !strings.Contains(err.Error(), "rank 1: calls") {
					t.Errorf("got %v", err)
				}
			}
		})
	}
}

func TestBadArguments(t *testing.T) {
	ctx, c := t.Context(), Alone()
	if err := Launch(ctx, 0, nil); err == nil {
		t.Error("a world of no ranks was launched")
	}
	if _, err := c.Broadcast(ctx, 1, nil); err == nil {
		t.Error("broadcast from a rank that is not there")
	}
	if err := c.AllReduce(ctx, Op(7), Buffer{F32: []float32{1}}); err == nil {
		t.Error("all-reduce by an unknown operation")
	}
	if err := c.AllReduce(ctx, Sum, Buffer{F32: []float32{1}, F64: []float64{1}}); err == nil {
		t.Error("all-reduce of two buffers")
	}
}

func TestManyRoundsStaySynchronised(t *testing.T) {
	err := Launch(t.Context(), 4, func(ctx context.Context, c Comm) error {
		x := []float64{0}
		for i := range 300 {
			x[0] = float64(i + c.Rank())
			if err := AllReduce(ctx, c, Sum, x); err != nil {
				return err
			}
			if want := float64(4*i + 6); x[0] != want {
				return fmt.Errorf("round %d: %v, want %v", i, x[0], want)
			}
			if got, err := Broadcast(ctx, c, i%4, c.Rank()); err != nil || got != i%4 {
				return fmt.Errorf("round %d: broadcast gave %d, %v", i, got, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func BenchmarkAllReduce(b *testing.B) {
	const n = 1 << 20
	b.SetBytes(4 * n)
	_ = Launch(b.Context(), 2, func(ctx context.Context, c Comm) error {
		x := make([]float32, n)
		for range b.N {
			if err := AllReduce(ctx, c, Mean, x); err != nil {
				return err
			}
		}
		return nil
	})
}
