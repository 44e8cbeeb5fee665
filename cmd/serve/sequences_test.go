package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/meta"
)

// TestSequencesTakeNoMemoryFromWeights: without --max-batch a server runs 64 sequences. It ran 16 if all weights
// were in memory. The plan has as many weights in memory as for one sequence.
func TestSequencesTakeNoMemoryFromWeights(t *testing.T) {
	for _, shape := range []string{"dense-1b", "moe-1b"} {
		config, err := meta.ReadConfigFile(filepath.Join("..", "..", "dispatch", "testdata", "shapes", shape+".json"))
		if err != nil {
			t.Fatal(err)
		}
		skeleton, err := meta.New(config, nil)
		if err != nil {
			t.Fatal(err)
		}
		planner := dispatch.NewPlanner(skeleton)
		for _, limit := range []int64{300 << 20, 1 << 30, 64 << 30} {
			var weights []int64
			for _, flag := range []int{0, 1} {
				o, err := (&sizeFlags{MaxBatch: flag, Threads: 1, Compress: "none"}).options()
				if err != nil {
					t.Fatal(err)
				}
				o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(limit)}}
				plan, planned, err := planner.Plan(o)
				if err != nil {
					t.Fatal(err)
				}
				if want := max(flag, 64*(1-flag)); planned.MaxSequences != want {
					t.Errorf("--max-batch %d: %d sequences, want %d", flag, planned.MaxSequences, want)
				}
				weights = append(weights, plan.DiskBytesPerToken, plan.Device(devicemap.CPU).WeightsBytes)
			}
			if fmt.Sprint(weights[:2]) != fmt.Sprint(weights[2:]) {
				t.Errorf("%s, %d bytes: bytes from the disk and in memory %d with 64 sequences, %d with one", shape, limit, weights[:2], weights[2:])
			}
		}
	}
}
