//go:build soak

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/hostmem"
)

// faultFile is the environment variable with the name of the file from which a server under test
// reads how its disk fails.
const faultFile = "SOAK_FAULT_FILE"

// A disk says how often direct reads and writes of a server under test fail, between 0 and 1.
type disk struct {
	ReadError, ShortRead, SlowRead, WriteError float64
	NoSpace                                    bool // of WriteError: ENOSPC instead of EIO
}

func init() {
	name := os.Getenv(faultFile)
	if name == "" || len(os.Args) < 2 || os.Args[1] != underTest {
		return
	}
	state := func() (d disk) {
		if text, err := os.ReadFile(name); err == nil {
			_, _ = fmt.Sscanf(string(text), "%g %g %g %g %t", &d.ReadError, &d.ShortRead, &d.SlowRead, &d.WriteError, &d.NoSpace)
		}
		return d
	}
	read, write := hostmem.DirectRead, hostmem.DirectWrite
	hostmem.DirectRead = func(f *os.File, buf []byte, off int64) (int, error) {
		d := state()
		if rand.Float64() < d.SlowRead {
			time.Sleep(rand.N(20 * time.Millisecond))
		}
		if rand.Float64() < d.ReadError {
			return 0, syscall.EIO
		}
		if rand.Float64() < d.ShortRead {
			buf = buf[:max(4096, rand.IntN(len(buf)+1)&^(4096-1))]
		}
		return read(f, buf, off)
	}
	hostmem.DirectWrite = func(f *os.File, buf []byte, off int64) (int, error) {
		d := state()
		switch fails := rand.Float64() < d.WriteError; {
		case fails && d.NoSpace:
			return 0, syscall.ENOSPC
		case fails:
			return 0, syscall.EIO
		}
		return write(f, buf, off)
	}
}

// faults makes the disk of one server fail from time to time.
type faults struct {
	file    string   // of the server's environment
	weights []string // checkpoint files that may be cut

	mu      sync.Mutex
	excused []span
	counts  map[string]int
}

// A span is a time during which requests may fail.
type span struct{ begin, end time.Time }

// retried is how long a server answers with the error of a model that it could not load.
const retried = 5500 * time.Millisecond

// excuses reports whether a request that ran from begin until now may have failed with err.
func (f *faults) excuses(begin time.Time, err error) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	grace := time.Duration(0)
	if strings.Contains(err.Error(), "cannot be loaded") {
		grace = retried
	}
	for _, s := range f.excused {
		if s.end.IsZero() || begin.Before(s.end.Add(grace)) {
			return true
		}
	}
	return false
}

func (f *faults) set(t *testing.T, d disk) {
	text := fmt.Sprintf("%g %g %g %g %t", d.ReadError, d.ShortRead, d.SlowRead, d.WriteError, d.NoSpace)
	if err := atomicfile.WriteFile(f.file, []byte(text)); err != nil {
		t.Error(err)
	}
}

// run makes faults until ctx ends. Short and slow reads, and writes that fail, are no reason for a
// request to fail; the others are, while they last and for a moment after.
func (f *faults) run(ctx context.Context, t *testing.T, r *rand.Rand) {
	for f.wait(ctx, r, 200, 800); ctx.Err() == nil && !t.Failed(); f.wait(ctx, r, 300, 1500) {
		switch r.IntN(7) {
		case 0:
			f.during(ctx, t, r, "short and slow reads", disk{ShortRead: 0.3, SlowRead: 0.1})
		case 1:
			f.during(ctx, t, r, "failed writes", disk{WriteError: 0.5})
		case 2:
			f.during(ctx, t, r, "full disk", disk{WriteError: 1, NoSpace: true})
		case 3, 4:
			end := f.excuse()
			f.during(ctx, t, r, "some failed reads", disk{ReadError: 0.1, ShortRead: 0.1})
			end()
		case 5:
			end := f.excuse()
			f.during(ctx, t, r, "failed reads", disk{ReadError: 1})
			end()
		case 6:
			end := f.excuse()
			f.cut(ctx, t, r)
			end()
		}
	}
}

// wait sleeps for a random number of milliseconds.
func (f *faults) wait(ctx context.Context, r *rand.Rand, least, most int) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(least+r.IntN(most-least)) * time.Millisecond):
	}
}

func (f *faults) during(ctx context.Context, t *testing.T, r *rand.Rand, name string, d disk) {
	f.count(name)
	f.set(t, d)
	f.wait(ctx, r, 50, 600)
	f.set(t, disk{})
}

func (f *faults) count(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[name]++
}

// excuse begins a time in which requests may fail. The function that it returns ends it.
func (f *faults) excuse() (end func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.excused = append(f.excused, span{begin: time.Now()})
	i := len(f.excused) - 1
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.excused[i].end = time.Now().Add(200 * time.Millisecond)
	}
}

// cut makes a checkpoint file shorter for a moment. It is the same file afterwards.
func (f *faults) cut(ctx context.Context, t *testing.T, r *rand.Rand) {
	f.count("cut files")
	path := f.weights[r.IntN(len(f.weights))]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
		return
	}
	info, err := os.Stat(path)
	size := r.Int64N(int64(len(whole)))
	if err = errors.Join(err, os.Truncate(path, size)); err != nil {
		t.Error(err)
		return
	}
	f.wait(ctx, r, 20, 300)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	_, err = w.WriteAt(whole[size:], size)
	if err = errors.Join(err, w.Close(), os.Chtimes(path, info.ModTime(), info.ModTime())); err != nil {
		t.Error(err)
	}
}
