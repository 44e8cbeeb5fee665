package data

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/heftai/heft/train/rng"
)

type resumable struct {
	name    string
	options func(global *rng.Generator) Options
	prepare *PrepareOptions // nil: the loader is not prepared
	stream  bool
}

func (c resumable) loader(t *testing.T, global *rng.Generator) *Loader[[]int] {
	t.Helper()
	all := make(Slice[int], 23)
	for i := range all {
		all[i] = i
	}
	var l *Loader[[]int]
	var err error
	if c.stream {
		l, err = NewStreamLoader(all, Samples[int], c.options(global))
	} else {
		l, err = NewLoader(all, Samples[int], c.options(global))
	}
	if err == nil && c.prepare != nil {
		err = l.Prepare(*c.prepare)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestALoaderGoesOnWithTheNextBatch(t *testing.T) {
	shuffled := func(global *rng.Generator) Options { return Options{BatchSize: 4, Shuffle: true, Global: global} }
	own := func(*rng.Generator) Options {
		return Options{BatchSize: 4, Shuffle: true, Generator: rng.New(5), Workers: 2}
	}
	drawn := func(global *rng.Generator) Options {
		return Options{BatchSize: 4, Sampler: &RandomSampler{N: 23, Samples: 40, Replacement: true, Generator: rng.New(9)}, Global: global, Workers: 1}
	}
	inOrder := func(*rng.Generator) Options { return Options{BatchSize: 4} }
	for _, c := range []resumable{
		{"plain, shuffled by the shared generator", shuffled, nil, false},
		{"plain, by its own", own, nil, false},
		{"prepared, by the shared generator", shuffled, &PrepareOptions{}, false},
		{"prepared, drawn with replacement", drawn, &PrepareOptions{}, false},
		{"a seedable order", shuffled, &PrepareOptions{UseSeedableSampler: true, DataSeed: 3}, false},
		{"dispatched", shuffled, &PrepareOptions{Dispatch: DispatchAlways}, false},
		{"a stream", inOrder, &PrepareOptions{Dispatch: DispatchNever}, true},
		{"a dispatched stream", inOrder, &PrepareOptions{}, true},
	} {
		for stop := range 18 {
			t.Run(fmt.Sprint(c.name, " after ", stop), func(t *testing.T) { c.check(t, stop) })
		}
	}
}

// check walks three epochs, saving after stop batches, and compares what comes after
// with what comes from a loader that goes on there.
func (c resumable) check(t *testing.T, stop int) {
	global := rng.New(7)
	l := c.loader(t, global)
	var rest [][]int
	var saved []byte
	var shared []byte
	n := 0
	note := func() {
		if n == stop && saved == nil {
			saved, shared = position(t, l, global)
		}
	}
	note()
	for range 3 {
		for b, err := range l.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			if saved != nil {
				rest = append(rest, append(b, int(global.Uint32()>>20)))
			} else {
				global.Uint32() // the loop draws, too
			}
			n++
			note()
		}
	}
	if saved == nil {
		t.Fatalf("there are %d batches", n)
	}
	again := rng.New(100)
	if err := again.UnmarshalBinary(shared); err != nil {
		t.Fatal(err)
	}
	l = c.loader(t, again)
	if err := again.UnmarshalBinary(shared); err != nil { // preparing draws
		t.Fatal(err)
	}
	var p LoaderPosition
	if err := json.Unmarshal(saved, &p); err != nil {
		t.Fatal(err)
	}
	if err := l.Restore(p); err != nil {
		t.Fatal(err)
	}
	var got [][]int
	for len(got) < len(rest) {
		for b, err := range l.All(context.Background()) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, append(b, int(again.Uint32()>>20)))
		}
	}
	if !slices.EqualFunc(got, rest, slices.Equal) {
		t.Errorf("went on with %v\nwant %v", got, rest)
	}
}

func position(t *testing.T, l *Loader[[]int], global *rng.Generator) (saved, shared []byte) {
	t.Helper()
	p, err := l.Position()
	if err != nil {
		t.Fatal(err)
	}
	if saved, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	if shared, err = global.MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	return saved, shared
}

func TestAPositionThatDoesNotFitIsRefused(t *testing.T) {
	c := resumable{options: func(g *rng.Generator) Options {
		return Options{Shuffle: true, Global: g, Generator: rng.New(1)}
	}}
	l := c.loader(t, rng.New(1))
	good, err := l.Position()
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*LoaderPosition){
		"no generators":   func(p *LoaderPosition) { p.Generators = nil },
		"a short one":     func(p *LoaderPosition) { p.Generators = [][]byte{{1}} },
		"before it began": func(p *LoaderPosition) { p.Batches = -1 },
		"no shared one":   func(p *LoaderPosition) { p.Batches = 1 },
		"a broken one":    func(p *LoaderPosition) { p.Batches, p.Global = 1, []byte{1, 2} },
		"a negative epoch": func(p *LoaderPosition) {
			p.Iteration = -1
		},
	} {
		p := good
		change(&p)
		if err := l.Restore(p); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if err := l.Restore(good); err != nil {
		t.Error(err)
	}
}
