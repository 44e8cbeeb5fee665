package main

import (
	"path/filepath"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// TestStreamedWeightsServeMoreSequences: without --max-batch a model that streams runs more sequences than one in
// memory, and --max-batch decides otherwise.
func TestStreamedWeightsServeMoreSequences(t *testing.T) {
	config, err := meta.ReadConfigFile(filepath.Join("..", "..", "dispatch", "testdata", "shapes", "dense-1b.json"))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit   int64
		flag    int
		want    int
		streams bool
	}{{64 << 30, 0, usualSequences, false}, {1 << 30, 0, streamedSequences, true}, {1 << 30, 3, 3, false}} {
		f := sizeFlags{MaxBatch: c.flag}
		o := dispatch.Options{Serving: true, Threads: 1, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(c.limit)}}}
		_, planned, streams, err := f.planSequences(dispatch.NewPlanner(skeleton), o)
		if n := planned.MaxSequences; err != nil || n != c.want || streams != c.streams {
			t.Errorf("%d bytes, --max-batch %d: %d sequences, streams %v, %v; want %d, %v", c.limit, c.flag, n, streams, err, c.want, c.streams)
		}
	}
}
