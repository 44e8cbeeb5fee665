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
	// Budget is how long Measure takes to find a plan on a machine that is not busy. The gains of coded weights take
	// some 15 ms more.
	Budget = 30 * time.Millisecond
	// distancesBudget is the part of it that distanceRounds take.
	distancesBudget = 7 * time.Millisecond
	// perThread is the memory that each thread reads at a time.
	perThread = 512 << 10
	// MostThreads is how many threads measure at most: 16 MiB of memory for all.
	MostThreads = 32
	// filler is what the memory has: ordinary numbers in every format.
	filler = 0x3c
)

// ErrUnable says that the kernels have no patterns to choose from, because they have no assembly.
var ErrUnable = errors.New("tune: this processor's kernels have one fetch pattern only")

// Options say what Measure measures.
type Options struct {
	// Variant of the kernels; "" is the best one.
	Variant string
	// Threads read at once, as many as will compute; 0 is one. More than MostThreads are taken for
	// it.
	Threads int
	// Usual is the plan that stays where no other is faster.
	Usual fetch.Plan
	// Ledger counts the memory, up to 8 MiB for each thread in whole huge pages and at most 16 MiB; nil counts nothing.
	Ledger *hostmem.Ledger
	// StoredOnly makes Start take a stored plan or the default and measure nothing.
	StoredOnly bool

	meter   meter       // in tests, instead of the kernels
	expired func() bool // in tests, instead of the budget
	fixed   *Key        // in tests, instead of this processor's
}

var measuring sync.Mutex

// A Rate is how fast one pattern was, in bytes per second.
type Rate struct {
	Pattern        fetch.Pattern `json:"pattern"`
	BytesPerSecond float64       `json:"bytes_per_second"`
}

// A Report is a plan and the rates of the candidates by the role's name, fastest first. Roles that
// were not measured have the usual pattern and no rates.
type Report struct {
	Plan  fetch.Plan        `json:"plan"`
	Rates map[string][]Rate `json:"rates"`

	measured []measurement // what it is made of, at most settled
}

// A measurement is what one start has measured.
type measurement struct {
	Rates rates `json:"rates"`
	Gains gains `json:"coded_gains,omitempty"`
}

// Measure finds the fastest pattern of each role. It takes about Budget, changes the process's plan
// meanwhile and leaves the one that it found in use. If it fails, for lack of memory, with the
// context's error or with ErrUnable, the plan does not change. A second Measure waits for the
// first.
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

// planOf is plan with the kernels of set as the meter.
func planOf(ctx context.Context, o Options, set *kernels.Set, threads int) (*Report, error) {
	// Weights lie in huge pages, and prefetches behave differently in small ones.
	block, err := hostmem.Alloc(o.Ledger, hostmem.Other, hostmem.Up(threads*perThread, hostmem.HugePage))
	if err != nil {
		return nil, fmt.Errorf("tune: %w", err)
	}
	defer func() { _ = block.Release() }() // held once
	w := newWorkers(set, block.Bytes(), threads)
	defer w.close()
	if !w.able() {
		return nil, ErrUnable
	}
	o.meter = w.measure
	return plan(ctx, o, threads)
}

// plan finds the plan by o's meter.
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

// Workers are threads with a part of the memory each.
type workers struct {
	parts [][]byte
	reads [][fetch.Roles]func() // by thread; nil where the kernels cannot be measured
	start []chan fetch.Role
	times []float64
	ready sync.WaitGroup
}

func newWorkers(set *kernels.Set, memory []byte, threads int) *workers {
	return newWorkersOf(set, memory, threads, perThread, readers)
}

// newWorkersOf makes threads with each bytes of memory, which the functions that read returns read.
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

// able reports whether memory can be filled past the caches.
func (w *workers) able() bool { return roof.Stream(w.parts[0][:64], filler) }

// work reads the memory of thread i once for each role that it is sent.
func (w *workers) work(i int) {
	for role := range w.start[i] {
		roof.Stream(w.parts[i], filler)
		begin := time.Now()
		w.reads[i][role]()
		w.times[i] = time.Since(begin).Seconds()
		w.ready.Done()
	}
}

// measure is the time that all threads need together, from the sum of their rates: a thread that
// the system holds up counts for the time that it had.
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
