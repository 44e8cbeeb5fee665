package cpu

import (
	"fmt"
	"testing"
	"time"

	"github.com/heftai/heft/internal/topology"
)

type nothing struct{}

func (*nothing) run(*worker, int) {}

// onTwoNodes is a layout of threads, half of them on each of two nodes, of processors that
// are there.
func onTwoNodes(threads int) *topology.Layout {
	here := topology.Here()
	l := &topology.Layout{Near: map[int][]int{0: {0, 1}, 1: {1, 0}}, CPUs: map[int][]int{}}
	for i := range max(2, len(here.CPUs)) {
		l.CPUs[i%2] = append(l.CPUs[i%2], here.CPUs[i%len(here.CPUs)].ID)
	}
	for i := range threads {
		node := 2 * i / threads
		l.Places = append(l.Places, topology.CPU{ID: here.CPUs[i%len(here.CPUs)].ID, Node: node, Speed: 1})
		l.Homes = append(l.Homes, 0) // the only one that is sure to be there
	}
	return l
}

// BenchmarkPoolTask measures the cost of sharing a task without work: with threads that the system
// places, and with those that keep to a node.
func BenchmarkPoolTask(b *testing.B) {
	for _, threads := range []int{1, 2, 64} {
		for how, layout := range map[string]*topology.Layout{"free": nil, "bound": onTwoNodes(threads)} {
			b.Run(fmt.Sprintf("threads=%d/%s", threads, how), func(b *testing.B) {
				p := newPool(threads, layout, nil, func(r any) { b.Errorf("recovered %v", r) })
				defer p.close()
				task := new(nothing)
				b.ReportAllocs()
				for b.Loop() {
					p.run(task, 8, worthSharing)
				}
			})
		}
	}
}

// BenchmarkManyThreads is the same work on as many threads as there are processors, and on
// many more, one operation close behind another as where a model runs.
func BenchmarkManyThreads(b *testing.B) {
	for _, threads := range []int{2, 8, 64} {
		for how, layout := range map[string]*topology.Layout{"free": nil, "bound": onTwoNodes(threads)} {
			b.Run(fmt.Sprintf("threads=%d/%s", threads, how), func(b *testing.B) {
				p := newPool(threads, layout, nil, func(r any) { b.Errorf("recovered %v", r) })
				defer p.close()
				task := taskFunc(func(*worker, int) { spun.Store(int64(spin())) })
				for b.Loop() {
					p.run(task, 128, 128*20_000)
				}
			})
		}
	}
}

// BenchmarkUneven has a thread that is four times slower than the other, as cores of two
// kinds are. "best" is the time that a perfect division would take, as a share of what was.
func BenchmarkUneven(b *testing.B) {
	p := newPool(2, nil, nil, func(r any) { b.Errorf("recovered %v", r) })
	defer p.close()
	const units, fast, slow = 128, 20 * time.Microsecond, 80 * time.Microsecond
	task := taskFunc(func(w *worker, _ int) {
		until := time.Now().Add(fast)
		if w.index == 1 {
			until = until.Add(slow - fast)
		}
		for time.Now().Before(until) {
		}
	})
	for b.Loop() {
		p.run(task, units, worthSharing)
	}
	rate := 1/fast.Seconds() + 1/slow.Seconds()
	b.ReportMetric(units/rate*float64(b.N)/b.Elapsed().Seconds(), "best")
}
