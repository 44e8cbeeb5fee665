//go:build unix

package cpu

import (
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/heftai/heft/internal/kernels"
)

// BenchmarkSignals sends signals to the process while it computes on all processors, and reports
// how long it took until a goroutine had each: one that waits for a signal, as one that waits
// for a request, gets its turn between kernels. "nothing" is a loop that can be stopped anywhere
// and yields all the time: the time that the system takes to run another thread next to busy ones.
func BenchmarkSignals(b *testing.B) {
	b.Run("nothing", func(b *testing.B) {
		signals(b, "go", func(be *Backend, _ *pauseMemory) func() {
			return func() { be.run(taskFunc(func(*worker, int) { spun.Store(int64(spin())) }), 64, 64*20_000) }
		})
	})
	for _, variant := range kernels.Names() {
		for name, ops := range pauseOps {
			b.Run(variant+"/"+name, func(b *testing.B) { signals(b, variant, ops) })
		}
	}
}

func signals(b *testing.B, variant string, ops func(*Backend, *pauseMemory) func()) {
	be, err := New(Options{Threads: runtime.GOMAXPROCS(0), Variant: variant})
	if err != nil {
		b.Fatal(err)
	}
	defer be.Close()
	op := ops(be, newPauseMemory(b, be))
	kinds := []syscall.Signal{syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGHUP}
	got := make(chan os.Signal, 1)
	for _, s := range kinds {
		signal.Notify(got, s)
	}
	defer signal.Stop(got)
	stop, done := make(chan struct{}), make(chan []time.Duration)
	go func() {
		var took []time.Duration
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- took
				return
			case <-time.After(2 * time.Millisecond):
			}
			sent := time.Now()
			if err := syscall.Kill(os.Getpid(), kinds[i%len(kinds)]); err != nil {
				b.Error(err)
				continue
			}
			<-got
			took = append(took, time.Since(sent))
		}
	}()
	for b.Loop() {
		op()
	}
	close(stop)
	took := <-done
	if err := be.Sync(); err != nil {
		b.Fatal(err)
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	b.ReportMetric(1e3*took[len(took)-1].Seconds(), "max-signal-ms")
	b.ReportMetric(1e3*took[len(took)/2].Seconds(), "p50-signal-ms")
	b.ReportMetric(1e3*took[len(took)*98/100].Seconds(), "p98-signal-ms")
	b.ReportMetric(float64(len(took)), "signals")
}
