package tune

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/heftai/heft/internal/hostmem"
	"github.com/heftai/heft/internal/kernels"
	"github.com/heftai/heft/internal/kernels/fetch"
	"github.com/heftai/heft/internal/kernels/isa"
	"github.com/heftai/heft/internal/kernels/roof"
)

const (
	// Budget is the time that Measure takes to find a plan on an idle machine. The gains of coded
	// weights take some 15 ms more.
	Budget = 30 * time.Millisecond
	// distancesBudget is the part of Budget for distanceRounds.
	distancesBudget = 7 * time.Millisecond
	// perThread is the memory that each thread reads at a time.
	perThread = 512 << 10
	// MostThreads is the largest number of threads that measure. Together they read 16 MiB.
	MostThreads = 32
	// filler is the byte that fills the memory. It makes ordinary numbers in every format.
	filler = 0x3c
)

// ErrUnable means that the kernels have no patterns to choose from, because they are not in
// assembly.
var ErrUnable = errors.New("tune: this processor's kernels have one fetch pattern only")

// Options configure Measure.
type Options struct {
	// Variant is the kernel variant; "" means the best one.
	Variant string
	// Threads is the number of compute threads, which read at once; 0 means one. Measure uses at
	// most MostThreads.
	Threads int
	// Usual is the plan to keep where no other is faster.
	Usual fetch.Plan
	// Ledger counts the memory: up to 8 MiB per thread in whole huge pages, at most 16 MiB in
	// total. If it is nil, nothing is counted.
	Ledger *hostmem.Ledger
	// StoredOnly makes Start use a stored plan or the default without measuring.
	StoredOnly bool

	meter   meter       // replaces the kernels in tests
	expired func() bool // replaces the budget in tests
	fixed   *Key        // replaces this processor's key in tests
}

var measuring sync.Mutex

// A Rate is the speed of one pattern in bytes per second.
type Rate struct {
	Pattern        fetch.Pattern `json:"pattern"`
	BytesPerSecond float64       `json:"bytes_per_second"`
}

// A Report holds a plan and the rates of the candidates by role name, fastest first. Roles that
// were not measured have the usual pattern and no rates.
type Report struct {
	Plan  fetch.Plan        `json:"plan"`
	Rates map[string][]Rate `json:"rates"`

	measured []measurement // the measurements that the report is made of, at most settled
}

// A measurement is the result of one start.
type measurement struct {
	Rates rates `json:"rates"`
	Gains gains `json:"coded_gains,omitempty"`
}

// Measure finds the fastest pattern of each role and applies the resulting plan to the process.
// It takes about Budget and changes the process's plan while it measures. It fails if memory is
// short, with ctx's error, or with ErrUnable, and then restores the previous plan. Concurrent
// calls run one after another.
func Measure(ctx context.Context, o Options) (*Report, error) {
	measuring.Lock()
	defer measuring.Unlock()
	before := fetch.Current()
	report, err := measure(ctx, o)
	if err != nil {
		fetch.Use(before)
		return nil, err
	}
	fetch.Use(report.Plan)
	return report, nil
}

func measure(ctx context.Context, o Options) (*Report, error) {
	if err := o.Usual.Check(); err != nil {
		return nil, err
	}
	if o.expired == nil {
		o.expired = deadline(Budget - distancesBudget)
	}
	threads := min(max(o.Threads, 1), MostThreads)
	if o.meter != nil {
		report, err := plan(ctx, o, threads)
		if err != nil {
			return nil, err
		}
		report.measured = []measurement{{report.Rates, gainsOf(ctx, &report.Plan, o.meter)}}
		return report, nil
	}
	set, err := kernels.Select(o.Variant)
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	if set.Level == isa.Go {
		return nil, ErrUnable
	}
	report, err := planOf(ctx, o, set, threads)
	if err != nil {
		return nil, err
	}
	report.measured = []measurement{{report.Rates, measureGains(ctx, set, &report.Plan, threads, o.Ledger)}}
	return report, nil
}

// planOf calls plan with the kernels of set as the meter.
func planOf(ctx context.Context, o Options, set *kernels.Set, threads int) (*Report, error) {
	// Weights lie in huge pages, and prefetches behave differently in small ones.
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, hostmem.Up(threads*perThread, hostmem.HugePage))
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	defer func() { _ = block.Release() }() // allocated and released once
	w := newWorkers(set, block.Bytes(), threads)
	defer w.close()
	if !w.able() {
		return nil, ErrUnable
	}
	o.meter = w.measure
	return plan(ctx, o, threads)
}

// plan finds the plan with o's meter.
func plan(ctx context.Context, o Options, threads int) (*Report, error) {
	races := run(o.Usual, o.meter, o.expired, func() bool { return ctx.Err() != nil })
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	report := &Report{Plan: o.Usual, Rates: rates{}}
	for _, r := range races {
		report.Plan[r.role] = r.chosen()
		var list []Rate
		for i, p := range r.patterns {
			list = append(list, Rate{p, float64(threads*perThread) / r.time(i)})
		}
		slices.SortStableFunc(list, func(a, b Rate) int { return compare(b.BytesPerSecond, a.BytesPerSecond) })
		report.Rates[r.role.String()] = list
	}
	return report, nil
}

func compare(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// workers are threads, each with its part of the memory.
type workers struct {
	parts [][]byte
	reads [][fetch.Roles]func() // by thread; nil if the kernels cannot be measured
	start []chan fetch.Role
	times []float64
	ready sync.WaitGroup
}

func newWorkers(set *kernels.Set, memory []byte, threads int) *workers {
	return newWorkersOf(set, memory, threads, perThread, readers)
}

// newWorkersOf starts threads with each bytes of memory. read returns the functions that read it.
func newWorkersOf(set *kernels.Set, memory []byte, threads, each int, read func(*kernels.Set, []byte) [fetch.Roles]func()) *workers {
	w := &workers{times: make([]float64, threads)}
	for i := range threads {
		part := memory[i*each:][:each:each]
		part = part[-uintptr(unsafe.Pointer(unsafe.SliceData(part)))%64:]
		part = part[:len(part)&^63]
		w.parts, w.reads, w.start = append(w.parts, part), append(w.reads, read(set, part)), append(w.start, make(chan fetch.Role))
	}
	for i := range threads {
		go w.work(i)
	}
	return w
}

// able reports whether memory can be written with non-temporal stores.
func (w *workers) able() bool { return roof.Stream(w.parts[0][:64], filler) }

// work reads the memory of thread i once for each role that it receives.
func (w *workers) work(i int) {
	for role := range w.start[i] {
		roof.Stream(w.parts[i], filler)
		begin := time.Now()
		w.reads[i][role]()
		w.times[i] = time.Since(begin).Seconds()
		w.ready.Done()
	}
}

// measure returns the time of all threads together, from the sum of their rates. A thread that
// the system preempts counts with the time that it ran.
func (w *workers) measure(r fetch.Role, p fetch.Pattern) float64 {
	if w.reads[0][r] == nil {
		return 0
	}
	fetch.UseFor(r, p)
	w.ready.Add(len(w.start))
	for _, c := range w.start {
		c <- r
	}
	w.ready.Wait()
	rates := 0.0
	for _, t := range w.times {
		rates += 1 / max(t, 1e-9)
	}
	return float64(len(w.times)) / rates
}

func (w *workers) close() {
	for _, c := range w.start {
		close(c)
	}
}
