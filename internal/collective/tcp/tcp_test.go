package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/heftai/heft/internal/collective"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// listen returns a listener of rank 0, so that no test needs a free port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

// launch runs a world of n ranks over connections, each as a process would, and returns their errors.
func launch(t *testing.T, n int, fn func(ctx context.Context, c collective.Comm, l *Link) error) []error {
	t.Helper()
	lis, errs := listen(t), make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			o := Options{Rank: r, Size: n, Address: lis.Addr().String(), Token: "secret", Build: "b"}
			if r == 0 {
				o.Listener = lis
			}
			l, err := Connect(t.Context(), o)
			if err != nil {
				errs[r] = err
				return
			}
			errs[r] = fn(t.Context(), collective.Over(l), l)
			l.Close(errs[r])
		})
	}
	wg.Wait()
	return errs
}

func TestOperationsOverTCP(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		for r, err := range launch(t, n, func(ctx context.Context, c collective.Comm, _ *Link) error {
			for round := range 20 {
				x := make([]float32, 10_000)
				for i := range x {
					x[i] = float32(i%7*(c.Rank()+1) + round)
				}
				if err := collective.AllReduce(ctx, c, collective.Sum, x); err != nil {
					return err
				}
				for i := range x {
					if want := float32(i%7*n*(n+1)/2 + n*round); x[i] != want {
						return fmt.Errorf("element %d is %v, want %v", i, x[i], want)
					}
				}
				all, err := collective.AllGather(ctx, c, strings.Repeat("x", c.Rank()))
				if err != nil || len(all[n-1]) != n-1 {
					return fmt.Errorf("gathered %q, %w", all, err)
				}
			}
			return collective.Barrier(ctx, c)
		}) {
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, n, err)
			}
		}
	}
}

// A rank that fails while the others exchange ends them all, and they name it.
func TestAFailedRankIsNamed(t *testing.T) {
	broken := errors.New("out of paper")
	for r, err := range launch(t, 3, func(ctx context.Context, c collective.Comm, _ *Link) error {
		if err := collective.Barrier(ctx, c); err != nil || c.Rank() == 1 {
			return errors.Join(err, broken)
		}
		return collective.AllReduce(ctx, c, collective.Sum, make([]float32, 1<<20))
	}) {
		var e *collective.RankError
		if r != 1 && (!errors.As(err, &e) || e.Rank != 1 || !strings.Contains(err.Error(), "out of paper")) {
			t.Errorf("rank %d: %v, want the error of rank 1", r, err)
		}
	}
}

// Calls returned the failure of the world before its context was cancelled.
func TestOnFailIsCalledBeforeACallReturnsTheFailure(t *testing.T) {
	called := false
	l := &Link{failing: make(chan struct{}), fails: func(error) {
		runtime.Gosched()
		called = true
	}}
	go l.lose(&collective.RankError{Rank: 1, Err: net.ErrClosed})
	<-l.failing
	if !called {
		t.Error("the calls end, and OnFail has not been called")
	}
}

// A process that dies sends nothing: the others see the end of its connections.
func TestADeadRankIsNamed(t *testing.T) {
	for r, err := range launch(t, 3, func(ctx context.Context, c collective.Comm, l *Link) error {
		if err := collective.Barrier(ctx, c); err != nil {
			return err
		}
		if c.Rank() == 2 {
			l.mu.Lock() // a dead process tells no other rank that its connections ended
			l.failed = &collective.RankError{Rank: 2, Err: net.ErrClosed}
			close(l.failing)
			l.mu.Unlock()
			for _, p := range l.peers[:2] {
				_ = p.conn.Close()
			}
			return nil
		}
		return collective.Barrier(ctx, c)
	}) {
		var e *collective.RankError
		if r != 2 && (!errors.As(err, &e) || e.Rank != 2) {
			t.Errorf("rank %d: %v, want the loss of rank 2", r, err)
		}
	}
}

func TestARankThatLeftIsNamed(t *testing.T) {
	for r, err := range launch(t, 2, func(ctx context.Context, c collective.Comm, _ *Link) error {
		if c.Rank() == 1 {
			return nil
		}
		return collective.Barrier(ctx, c)
	}) {
		if r == 0 && !errors.Is(err, collective.ErrLeft) {
			t.Errorf("rank 0: %v, want that rank 1 has left", err)
		}
	}
}

func TestAContextEndsAnExchange(t *testing.T) {
	for r, err := range launch(t, 2, func(ctx context.Context, c collective.Comm, l *Link) error {
		if c.Rank() == 1 {
			<-l.failing // never comes, and gets an error
			return l.cause()
		}
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return collective.Barrier(ctx, c)
	}) {
		var e *collective.RankError
		if !errors.As(err, &e) || e.Rank != 0 {
			t.Errorf("rank %d: %v, want the cancelled context of rank 0", r, err)
		}
	}
}

// Peers that do not belong to the run are refused, with their address.
func TestPeersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
		ends   bool // rank 0 gives up
	}{
		"token": {func(o *Options) { o.Token = "guess" }, "another run token", false},
		"build": {func(o *Options) { o.Build = "other" }, "is another build", true},
		"world": {func(o *Options) { o.Size = 3 }, "a world of 3 ranks, here of 2", true},
	} {
		lis := listen(t)
		ctx, cancel := context.WithCancel(t.Context())
		warned := make(chan string, 1)
		o := Options{Rank: 0, Size: 2, Token: "secret", Build: "b", Listener: lis, Address: lis.Addr().String(), Warn: func(line string) { warned <- line }}
		ended := make(chan error, 1)
		go func() {
			_, err := Connect(ctx, o)
			ended <- err
		}()
		peer := Options{Rank: 1, Size: 2, Token: "secret", Build: "b", Address: lis.Addr().String()}
		c.change(&peer)
		if _, err := Connect(t.Context(), peer); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), o.Address) {
			t.Errorf("%s: the peer's error is %v, want %q and the address", name, err, c.want)
		}
		var line string
		if c.ends {
			line = (<-ended).Error()
		} else {
			line = <-warned
			cancel()
			<-ended
		}
		if !strings.Contains(line, "refused 127.0.0.1:") || !strings.Contains(line, c.want) {
			t.Errorf("%s: rank 0 says %q", name, line)
		}
		cancel()
	}
}

func TestAHandshakeHasALimit(t *testing.T) {
	if err := receive(strings.NewReader("\xff\xff\xff\xff"), new(hello)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Error(err)
	}
}

// A message longer than the receiver expects is an error and takes no memory.
func TestAMessageOfAnotherLengthIsRefused(t *testing.T) {
	for r, err := range launch(t, 2, func(ctx context.Context, c collective.Comm, l *Link) error {
		if c.Rank() == 1 {
			if err := l.Send(ctx, 0, make([]byte, 100)); err != nil {
				return err
			}
			<-l.failing
			return l.cause()
		}
		return l.Receive(ctx, 1, make([]byte, 10))
	}) {
		if err == nil || !strings.Contains(err.Error(), "rank 1: sends a message of 100 bytes, want 10") {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}

// TestTheNameOfRank0MayComeLater: in a cluster the name of a pod has no address at first. Rank 0 failed, and with it the
// job; the others waited.
func TestTheNameOfRank0MayComeLater(t *testing.T) {
	lis, tries, warnings := listen(t), 0, 0
	o := Options{Rank: 0, Size: 1, Address: "heft-train-0.heft-train:29500", Warn: func(line string) {
		if warnings++; !strings.Contains(line, "waiting for the name heft-train-0.heft-train to have an address") {
			t.Errorf("got the warning %q", line)
		}
	}}
	o.listen = func(context.Context, string) (net.Listener, error) {
		if tries++; tries < 3 {
			return nil, &net.DNSError{Err: "no such host", Name: "heft-train-0.heft-train", IsNotFound: true}
		}
		return lis, nil
	}
	l, err := Connect(t.Context(), o)
	if err != nil || tries != 3 || warnings != 1 {
		t.Fatalf("got %d tries, %d warnings and %v; want 3 and 1", tries, warnings, err)
	}
	l.Close(nil)
	o.listen = func(context.Context, string) (net.Listener, error) { tries++; return nil, errors.New("address in use") }
	if _, err := Connect(t.Context(), o); err == nil || tries != 4 {
		t.Errorf("got %v after %d tries, want the error of the first one", err, tries)
	}
}
