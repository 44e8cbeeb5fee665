package plan_test

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
	"github.com/heftai/heft/meta"
)

// TestPlannersPlanAsPlan: what a Planner keeps of earlier plans, for other limits, formats and numbers of sequences, changes no
// plan.
func TestPlannersPlanAsPlan(t *testing.T) {
	type planned struct {
		devicemap.Plan
		kv, tokens, sequences int
		loaded                meta.QuantFormat
	}
	all := func(plan devicemap.Plan, o dispatch.Options, err error) planned {
		if err != nil {
			t.Fatal(err)
		}
		return planned{plan, o.KVTokens, o.MaxBatchTokens, o.MaxSequences, o.LoadedAs()}
	}
	for shape, limits := range map[string][]int64{"moe-1t": {20}, "dense-1b": {1, 8}} {
		skeleton := dispatchtest.ModelShape(t, shape)
		planner := dispatch.NewPlanner(skeleton)
		plans := map[string]dispatch.Options{}
		for _, limit := range limits {
			for name, change := range map[string]func(o *dispatch.Options){
				"plain":        func(*dispatch.Options) {},
				"64 sequences": func(o *dispatch.Options) { o.MaxSequences = 64 },
				"converted":    func(o *dispatch.Options) { o.Quantize, o.CacheDir = meta.QuantQ4, "cache" },
				"coded":        func(o *dispatch.Options) { o.Compress, o.CacheDir = dispatch.CompressExact, "cache" },
				"not kept":     func(o *dispatch.Options) { o.Compress = dispatch.CompressExact },
				"two threads":  func(o *dispatch.Options) { o.Threads, o.Context = 2, 2048 },
			} {
				o := dispatchtest.ServingOptions(limit * dispatchtest.GiB)
				change(&o)
				plans[fmt.Sprintf("%s, %s in %d GiB", shape, name, limit)] = o
			}
		}
		want := map[string]planned{}
		for name, o := range plans {
			want[name] = all(dispatch.Plan(skeleton, o))
		}
		for range 2 { // in another order
			for name, o := range plans {
				if got, want := all(planner.Plan(o)), want[name]; !reflect.DeepEqual(got, want) {
					t.Errorf("%s: got %+v\n%s\nwant %+v\n%s", name, got, got.Explain(), want, want.Explain())
				}
			}
		}
	}
}
