package dispatch

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
)

const (
	hitsVersion = 1
	hitsBytes   = 64 << 10 // maximum size of a file
	mostHits    = 16       // measured sizes that a file keeps, the latest ones
	sameShare   = 0.01     // cache sizes that differ by less, as a share of all experts, are the same
	hitWindow   = 16       // passes that are counted together
)

// ExpertHits are the hit rates of the expert cache that earlier runs of a model measured, by the size
// of the cache. Plans predict hits from them; see [Options].ExpertHits.
type ExpertHits struct{ points []policy.Point }

// keptHits is the JSON of a file of hit rates.
type keptHits struct {
	Version int            `json:"version"`
	Points  []policy.Point `json:"points"` // latest last
}

// ExpertHitsFile returns the path in folder of the measured hit rates of models with this shape.
func ExpertHitsFile(folder string, skeleton *meta.Model) string {
	return filepath.Join(folder, "hits-"+shapeKey(skeleton)+".json")
}

// ReadExpertHits reads a file of [Model.SaveExpertHits]. It returns nil without an error if there is
// no file, or if another version of Heft wrote it.
func ReadExpertHits(path string) (*ExpertHits, error) {
	data, err := smallfile.Read(path, hitsBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var in keptHits
	if err == nil {
		err = json.Unmarshal(data, &in)
	}
	if err != nil {
		return nil, fmt.Errorf("dispatch: %s: %w", path, err)
	}
	if in.Version != hitsVersion {
		return nil, nil
	}
	if n := len(in.Points); n == 0 || n > mostHits {
		return nil, fmt.Errorf("dispatch: %s: got %d hit rates, want 1 to %d", path, n, mostHits)
	}
	for _, p := range in.Points {
		if !(p.Share > 0 && p.Share <= 1 && p.Hits >= 0 && p.Hits <= 1) {
			return nil, fmt.Errorf("dispatch: %s: got %+v, want a share above 0 and hits from 0 to 1", path, p)
		}
	}
	return &ExpertHits{in.Points}, nil
}

// SaveExpertHits stores the measured hit rate of the expert cache in folder, beside those of other
// cache sizes, for later plans. It does nothing before two times 16 passes in a row generated one
// token of one sequence each. It must not be called during a pass.
func (m *Model) SaveExpertHits(folder string) error {
	plan, _ := m.PlanNow()
	share := plan.CachedExpertShare()
	if folder == "" || m.hits.windows < 2 || share <= 0 {
		return nil
	}
	path := ExpertHitsFile(folder, m.skeleton)
	kept, err := ReadExpertHits(path)
	if err != nil || kept == nil { // a damaged file is written again
		kept = &ExpertHits{}
	}
	text, err := json.MarshalIndent(keptHits{hitsVersion, kept.with(policy.Point{Share: share, Hits: m.hits.rate}).points}, "", "  ")
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = atomicfile.WriteFile(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("dispatch: keeping the hits of experts: %w", err)
	}
	return nil
}

// with returns h with a new hit rate, which replaces an older one of the same size.
func (h *ExpertHits) with(p policy.Point) *ExpertHits {
	points := slices.DeleteFunc(slices.Clone(h.points), func(old policy.Point) bool { return math.Abs(old.Share-p.Share) < sameShare })
	points = append(points, p)
	return &ExpertHits{points[max(0, len(points)-mostHits):]}
}

// correct returns a curve through the measured hit rates. Elsewhere it differs from base as much as
// the measured rates do, interpolated, and no larger cache has fewer hits.
func (h *ExpertHits) correct(base *policy.Trace) *policy.Trace {
	errs := policy.Trace{} // measured less base, by share; interpolated like a curve
	for _, p := range h.points {
		errs.Curve = append(errs.Curve, policy.Point{Share: p.Share, Hits: p.Hits - base.Hits(p.Share)})
	}
	errs.Curve = append(errs.Curve, policy.Point{Share: 1 + sameShare}) // all experts are there
	byShare := func(a, b policy.Point) int { return cmp.Compare(a.Share, b.Share) }
	slices.SortFunc(errs.Curve, byShare)
	out := &policy.Trace{Curve: append(slices.Clone(base.Curve), h.points...)}
	slices.SortFunc(out.Curve, byShare)
	out.Curve = slices.CompactFunc(out.Curve, func(a, b policy.Point) bool { return a.Share == b.Share })
	bound := 1.0 // of what larger caches were measured to have
	for i := len(out.Curve) - 1; i >= 0; i-- {
		p := &out.Curve[i]
		p.Hits = min(max(0, base.Hits(p.Share)+errs.Hits(p.Share)), bound)
		if slices.ContainsFunc(h.points, func(m policy.Point) bool { return m.Share == p.Share }) {
			bound = p.Hits
		}
	}
	for i := 1; i < len(out.Curve); i++ {
		out.Curve[i].Hits = max(out.Curve[i].Hits, out.Curve[i-1].Hits)
	}
	return out
}

// expertHits returns the predicted hit rate by the share of experts that a cache has room for.
func (o *Options) expertHits() func(share float64) float64 {
	base := &usualCurve
	if o.Routing != nil {
		base = o.Routing.trace
	}
	if o.ExpertHits != nil {
		return o.ExpertHits.correct(base).Hits
	}
	return base.Hits
}

// hitsFrom says what the predicted hit rate of a cache with room for a share of all experts is from.
func (o *Options) hitsFrom(share float64) string {
	from := "the curve of usual routings; none was recorded for this model"
	if o.Routing != nil {
		from = fmt.Sprintf("%d recorded passes", o.Routing.Passes())
	}
	if o.ExpertHits == nil {
		return from
	}
	near := slices.MinFunc(o.ExpertHits.points, func(a, b policy.Point) int {
		return cmp.Compare(math.Abs(a.Share-share), math.Abs(b.Share-share))
	})
	if math.Abs(near.Share-share) < 3*sameShare {
		return "what an earlier run measured with this cache"
	}
	if o.Routing == nil {
		from = "the curve of usual routings"
	}
	return fmt.Sprintf("what an earlier run measured with room for %.0f %% of the experts, and %s", 100*near.Share, from)
}

// A hitCounter measures the hit rate of the expert cache while single tokens are generated. Only the
// goroutine that uses the model may use it. It does not allocate.
type hitCounter struct {
	from    policy.Stats // when the window began
	passes  int          // of the window
	windows int          // so far
	rate    float64      // that of the second window, which the later ones move; the first one fills the cache
}

// passed is called after each pass with the counters of the cache. counts reports that the pass, and
// the one before it, generated a token of one sequence.
func (c *hitCounter) passed(counts bool, now policy.Stats) {
	if !counts {
		c.passes, c.from = 0, now
		return
	}
	if c.passes++; c.passes < hitWindow {
		return
	}
	window := policy.Stats{Hits: now.Hits - c.from.Hits, Misses: now.Misses - c.from.Misses}
	c.passes, c.from = 0, now
	if window.Hits+window.Misses == 0 {
		return
	}
	if c.windows++; c.windows <= 2 {
		c.rate = window.HitRate()
	} else {
		c.rate += (window.HitRate() - c.rate) / 4
	}
}
