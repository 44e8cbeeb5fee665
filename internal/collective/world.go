package collective

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Launch runs fn on n ranks, each in its own goroutine, and waits for all. fn's context ends with
// ctx or when a rank fails. Launch returns the first failure as a [*RankError] and omits the errors
// that follow from it.
func Launch(ctx context.Context, n int, fn func(context.Context, Comm) error) error {
	if n < 1 {
		return fmt.Errorf("collective: a world of %d ranks", n)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w := newWorld(n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			defer nameRank(r)
			err := ErrLeft // stands if fn ends its goroutine, as t.FailNow does
			defer func() {
				w.leave(r, err)
				if err != nil {
					cancel()
				}
			}()
			err = fn(ctx, &local{w: w, rank: r})
		})
	}
	wg.Wait()
	return w.cause()
}

// nameRank goes on with a panic of a rank, which it names, with the place that panicked.
func nameRank(rank int) {
	if p := recover(); p != nil {
		panic(fmt.Sprintf("collective: rank %d panicked: %v\n\n%s", rank, p, debug.Stack()))
	}
}

// Alone is a world of one rank: nothing waits, nothing is copied but what a caller
// may keep.
func Alone() Comm { return &local{w: newWorld(1)} }

// A world is what n ranks share. Its ranks meet: each leaves an offer, and when the
// last has come all of them see all offers.
type world struct {
	size int

	mu      sync.Mutex
	met     chan struct{} // closed when this meeting is full, then replaced
	here    int
	offers  []offer
	left    int        // the first rank that has returned, or -1
	failed  *RankError // the first failure
	failing chan struct{}
}

// offer is what a rank brings to a meeting. Ranks that differ in key do not agree.
type offer struct {
	key   key
	buf   Buffer
	bytes []byte
	value any
}

type key struct {
	what     string
	op       Op
	root     int
	f32, f64 int
}

func (k key) String() string {
	switch k.what {
	case "all-reduce", "reduce-scatter":
		return fmt.Sprintf("%s (%v of %d float32, %d float64)", k.what, k.op, k.f32, k.f64)
	case "all-gather of parts":
		return fmt.Sprintf("%s (%d float32, %d float64)", k.what, k.f32, k.f64)
	case "broadcast of numbers":
		return fmt.Sprintf("broadcast from rank %d (%d float32, %d float64)", k.root, k.f32, k.f64)
	case "broadcast":
		return fmt.Sprintf("broadcast from rank %d", k.root)
	}
	return k.what
}

func newWorld(n int) *world {
	return &world{size: n, met: make(chan struct{}), offers: make([]offer, n), left: -1, failing: make(chan struct{})}
}

// fail makes every waiting and later call return e. Called with mu held.
func (w *world) fail(e *RankError) {
	if w.failed == nil {
		w.failed = e
		close(w.failing)
	}
}

// leave notes that rank has returned with err.
func (w *world) leave(rank int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left < 0 {
		w.left = rank
	}
	var known *RankError
	switch {
	case err == nil && w.here == 0:
	case err == nil:
		w.fail(&RankError{rank, ErrLeft})
	case errors.As(err, &known) && known == w.failed:
	default:
		w.fail(&RankError{rank, err})
	}
}

func (w *world) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		return nil
	}
	return w.failed
}

// meet brings rank's offer and returns all of them once every rank has come. Either
// all ranks of a meeting get the offers or none does. With patient set the context
// does not end the wait: the other ranks are sure to come.
func (w *world) meet(ctx context.Context, rank int, o offer, patient bool) ([]offer, error) {
	w.mu.Lock()
	if err := w.ready(ctx, rank, patient); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	met, offers := w.met, w.offers
	offers[rank] = o
	w.here++
	if w.here == w.size {
		w.met, w.offers, w.here = make(chan struct{}), make([]offer, w.size), 0
		if e := disagreement(offers); e != nil {
			w.fail(e)
			w.mu.Unlock()
			return nil, e
		}
		close(met)
		w.mu.Unlock()
		return offers, nil
	}
	w.mu.Unlock()

	done := ctx.Done()
	if patient {
		done = nil
	}
	select {
	case <-met:
		return offers, nil
	case <-w.failing:
	case <-done:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-met: // it filled up just before
		return offers, nil
	default:
	}
	w.fail(&RankError{rank, context.Cause(ctx)})
	return nil, w.failed
}

// ready says why a rank cannot wait for the others. Called with mu held.
func (w *world) ready(ctx context.Context, rank int, patient bool) error {
	if w.failed == nil && !patient && ctx.Err() != nil {
		w.fail(&RankError{rank, context.Cause(ctx)})
	}
	if w.failed == nil && w.left >= 0 {
		w.fail(&RankError{w.left, ErrLeft})
	}
	if w.failed != nil {
		return w.failed
	}
	return nil
}

func disagreement(offers []offer) *RankError {
	for r, o := range offers {
		if o.key != offers[0].key {
			return &RankError{r, fmt.Errorf("calls %v, while rank 0 calls %v", o.key, offers[0].key)}
		}
	}
	return nil
}
