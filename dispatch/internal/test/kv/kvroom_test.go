package kv_test

import (
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// A quarter of the limit was kept for the KV cache before any weight was placed, so models that fit
// in memory were streamed from the disk.
func TestKVCacheDoesNotPushWeightsToTheDisk(t *testing.T) {
	for _, test := range []struct {
		shape string
		limit int64
		most  int64 // bytes that a token may read from the disk
	}{
		{"moe-1b", 2500 << 20, 0},
		{"moe-mxfp4-117b", 64 * dispatchtest.GiB, 0},
		{"moe-1t", 20 * dispatchtest.GiB, 42 * dispatchtest.GiB},
		{"moe-671b", 200 * dispatchtest.GiB, 34 * dispatchtest.GiB},
		{"dense-405b", 200 * dispatchtest.GiB, 569 * dispatchtest.GiB},
	} {
		t.Run(test.shape, func(t *testing.T) {
			plan, o := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, test.shape), dispatchtest.ServingOptions(test.limit))
			if plan.DiskBytesPerToken > test.most {
				t.Errorf("a token reads %s from the disk, want at most %s", devicemap.FormatSize(plan.DiskBytesPerToken), devicemap.FormatSize(test.most))
			}
			if disk := plan.Device(devicemap.Disk).WeightsBytes; test.most == 0 && disk > 0 {
				t.Errorf("%s on the disk, want all weights in memory", devicemap.FormatSize(disk))
			}
			if o.KVBytes < plan.Device(devicemap.CPU).KVBytes || o.KVTokens == 0 {
				t.Errorf("options with %d bytes and %d tokens of KV cache, the plan has %d bytes", o.KVBytes, o.KVTokens, plan.Device(devicemap.CPU).KVBytes)
			}
		})
	}
}

// Memory that the weights leave free belongs to the KV cache: a share of the limit, or one sequence
// of the whole context.
func TestKVCacheTakesWhatWeightsLeave(t *testing.T) {
	skeleton := dispatchtest.ModelShape(t, "moe-1b")
	plan, _ := dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(2500<<20))
	if host := plan.Device(devicemap.CPU); host.LimitBytes != host.Used() {
		t.Errorf("%d bytes are free beside a KV cache of %d", host.LimitBytes-host.Used(), host.KVBytes)
	}
	plan, _ = dispatchtest.PlanShape(t, skeleton, dispatchtest.ServingOptions(3*dispatchtest.GiB))
	if host := plan.Device(devicemap.CPU); host.KVBytes > host.LimitBytes/4 || host.KVBytes < host.LimitBytes/5 {
		t.Errorf("a KV cache of %d bytes, want a quarter of %d", host.KVBytes, host.LimitBytes)
	}
	asked := dispatchtest.ServingOptions(3 * dispatchtest.GiB)
	asked.Context = 1024
	plan, o := dispatchtest.PlanShape(t, skeleton, asked)
	if most := o.MaxSequences * 1024; o.KVTokens > most || plan.Device(devicemap.CPU).KVBytes == 0 {
		t.Errorf("a KV cache of %d tokens, want at most %d", o.KVTokens, most)
	}
}

// Each change that FitsWith names is the smallest that keeps all weights in memory.
func TestFitsWith(t *testing.T) {
	for _, test := range []struct {
		shape    string
		limit    int64
		context  int
		batch    int
		quantize meta.QuantFormat
	}{
		{"moe-1b", 2300 << 20, 0, 16, meta.QuantQ8},
		{"moe-1b", 1200 << 20, 0, 16, meta.QuantQ4},
		{"moe-mxfp4-117b", 64 * dispatchtest.GiB, 131072, 16, meta.QuantNone},
		{"dense-405b", 780 * dispatchtest.GiB, 131072, 4096, meta.QuantQ8},
		{"moe-1t", 20 * dispatchtest.GiB, 0, 16, meta.QuantNone},
	} {
		t.Run(test.shape, func(t *testing.T) {
			skeleton, o := dispatchtest.ModelShape(t, test.shape), dispatchtest.ServingOptions(test.limit)
			o.Context, o.MaxSequences, o.CacheDir = test.context, test.batch, t.TempDir()
			plan, _ := dispatchtest.PlanShape(t, skeleton, o)
			fit, ok := dispatch.NewPlanner(skeleton).FitsWith(o, plan)
			if !ok || fit.Quantize != test.quantize || fit.LimitBytes <= test.limit {
				t.Fatalf("%+v %v, want quantize %v and a limit above %d", fit, ok, test.quantize, test.limit)
			}
			onDisk := func(change func(*dispatch.Options)) int64 {
				changed := o
				change(&changed)
				plan, _ := dispatchtest.PlanShape(t, skeleton, changed)
				return plan.Device(devicemap.Disk).WeightsBytes
			}
			limit := func(n int64) func(*dispatch.Options) {
				return func(o *dispatch.Options) {
					o.MaxMemory = []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: float64(n)}}
				}
			}
			if n := onDisk(limit(fit.LimitBytes)); n > 0 {
				t.Errorf("%d bytes on the disk with a limit of %d", n, fit.LimitBytes)
			}
			if onDisk(limit(fit.LimitBytes-8<<20)) == 0 {
				t.Errorf("all in memory with 8 MiB less than %d", fit.LimitBytes)
			}
			if fit.Quantize != meta.QuantNone {
				if n := onDisk(func(o *dispatch.Options) { o.Quantize = fit.Quantize }); n > 0 {
					t.Errorf("%d bytes on the disk with %v", n, fit.Quantize)
				}
			}
			if n := fit.Context; n > 0 && (onDisk(func(o *dispatch.Options) { o.Context = n }) > 0 || onDisk(func(o *dispatch.Options) { o.Context = n + 1024 }) == 0) {
				t.Errorf("context %d is not the longest with all weights in memory", n)
			}
			if n := fit.MaxSequences; n > 0 && onDisk(func(o *dispatch.Options) { o.MaxSequences = n }) > 0 {
				t.Errorf("weights on the disk with %d sequences", n)
			}
			if test.context > 0 && test.shape == "moe-mxfp4-117b" && fit.Context == 0 {
				t.Error("no shorter context is named")
			}
		})
	}
	plan, _ := dispatchtest.PlanShape(t, dispatchtest.ModelShape(t, "moe-1b"), dispatchtest.ServingOptions(2500<<20))
	if fit, ok := dispatch.NewPlanner(dispatchtest.ModelShape(t, "moe-1b")).FitsWith(dispatchtest.ServingOptions(2500<<20), plan); ok {
		t.Errorf("%+v for a plan with all weights in memory", fit)
	}
}

func BenchmarkPlanOf1T(b *testing.B) {
	skeleton := dispatchtest.ModelShape(b, "moe-1t")
	for b.Loop() {
		o := dispatchtest.ServingOptions(20 * dispatchtest.GiB)
		planner := dispatch.NewPlanner(skeleton)
		plan, _, err := planner.Plan(o)
		if err != nil {
			b.Fatal(err)
		}
		planner.FitsWith(o, plan)
	}
}
