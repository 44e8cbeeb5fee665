package plan_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/dispatch/internal/dispatchtest"
)

// TestMoreMemoryReadsNoMore: a token read up to a half more from the disk in plans for more memory. The solver took coded
// matrices for as small on the disk as in memory, memory was planned for streamed matrices and for experts at once, and
// small models lost most of their memory to the window of bands. What is left is what plans give for speed: room to read
// bands ahead costs a sixteenth, and weights are coded at each start from a tenth of the reads on.
func TestMoreMemoryReadsNoMore(t *testing.T) {
	shapes := []string{"dense-1b", "moe-1b", "moe-mxfp4-117b"}
	if testing.Short() {
		shapes = shapes[:2]
	}
	for _, shape := range shapes {
		skeleton := dispatchtest.ModelShape(t, shape)
		var all int64
		for _, p := range skeleton.Root.AllParams() {
			if p.SameAs == nil {
				all += p.Bytes()
			}
		}
		for compress, more := range map[dispatch.Compression]float64{dispatch.CompressNone: 1 + 1.0/15, dispatch.CompressAuto: 1.1} {
			t.Run(fmt.Sprintf("%s/%v", shape, compress), func(t *testing.T) {
				planner, least, at, plans := dispatch.NewPlanner(skeleton), int64(math.MaxInt64), int64(0), 0
				for limit := float64(all) / 25; limit < 1.2*float64(all); limit *= 1.03 {
					plan, _, err := planner.Plan(dispatch.Options{Serving: true, Compress: compress, MaxMemory: []devicemap.DeviceMemory{{Device: devicemap.CPU, Bytes: limit}}})
					if err != nil {
						t.Fatal(err)
					}
					if plan.BelowLeast {
						continue
					}
					plans++
					if n := plan.DiskBytesPerToken; float64(n) > more*float64(least) {
						t.Errorf("with %s a token reads %s, with %s it reads %s", devicemap.FormatSize(int64(limit)), devicemap.FormatSize(n),
							devicemap.FormatSize(at), devicemap.FormatSize(least))
					} else if n < least {
						least, at = n, int64(limit)
					}
				}
				if plans < 50 || least > 1<<20 {
					t.Errorf("%d plans, of which the last reads %d bytes a token: want 50 from the least memory to that for all weights", plans, least)
				}
			})
		}
	}
}
