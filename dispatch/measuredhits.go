package dispatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/heftai/heft/dispatch/internal/placement"
	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/internal/residency/policy"
	"github.com/heftai/heft/internal/smallfile"
	"github.com/heftai/heft/meta"
)

const (
	hitsVersion = 1
	hitsBytes   = 64 << 10 // maximum size of a file
	mostHits    = 16       // measured sizes that a file keeps, the latest ones
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
	points := slices.DeleteFunc(slices.Clone(h.points), func(old policy.Point) bool { return math.Abs(old.Share-p.Share) < placement.SameShare })
	points = append(points, p)
	return &ExpertHits{points[max(0, len(points)-mostHits):]}
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
