package pressure

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"
)

const gib = int64(1) << 30

// run steps a controller along limits, one each 100 ms, and calls check with each decision.
func run(c *Controller, limits []int64, check func(i int, d Decision)) {
	now := time.Unix(1000, 0)
	for i, l := range limits {
		check(i, c.Step(now, Reading{Limit: l}))
		now = now.Add(100 * time.Millisecond)
	}
}

// TestARandomWalkIsFollowed: the target is never above the limit nor below the minimum, falls in the
// step in which the limit falls, and is the limit once that has been steady.
func TestARandomWalkIsFollowed(t *testing.T) {
	rises := 0
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := Limits{Most: 4 * gib, Least: gib / 2}
		var walk []int64
		for limit := l.Most; len(walk) < 2000; {
			limit = min(max(limit+int64(r.NormFloat64()*float64(gib)/2), gib/4), 6*gib)
			for range 1 + r.IntN(60) {
				walk = append(walk, limit)
			}
		}
		same, before := 0, l.Most
		run(NewController(l), walk, func(i int, d Decision) {
			if i > 0 && walk[i] == walk[i-1] {
				same++
			} else {
				same = 0
			}
			want := min(max(walk[i], l.Least), l.Most)
			if d.Target > want || d.Target < l.Least {
				t.Fatalf("seed %d, step %d: target %d with a limit of %d", seed, i, d.Target, walk[i])
			}
			if d.Changed != (d.Target != before) || (d.Short > 0) != (walk[i] < l.Least) {
				t.Fatalf("seed %d, step %d: %+v after %d with a limit of %d", seed, i, d, before, walk[i])
			}
			if same >= 41 && want-d.Target > d.Target/coarse {
				t.Fatalf("seed %d, step %d: target %d, but the limit is %d for %d steps", seed, i, d.Target, walk[i], same)
			}
			if d.Target > before {
				rises++
			}
			before = d.Target
		})
	}
	if rises == 0 {
		t.Error("nothing came back")
	}
}

// TestASwingingLimitMovesNoWeights: a limit that rises for less than the steady time does not
// bring weights back.
func TestASwingingLimitMovesNoWeights(t *testing.T) {
	var swing []int64
	for i := range 400 {
		swing = append(swing, []int64{2 * gib, 3 * gib}[i/5%2])
	}
	changes := 0
	run(NewController(Limits{Most: 4 * gib}), swing, func(i int, d Decision) {
		if d.Changed {
			changes++
		}
	})
	if changes != 1 {
		t.Errorf("%d changes, want only the first fall", changes)
	}
}

// TestALimitMayRiseAboveItsStart: a limit that rose above that of the start brought nothing.
func TestALimitMayRiseAboveItsStart(t *testing.T) {
	var walk, targets []int64
	for range 60 {
		walk = append(walk, 6*gib)
	}
	run(NewController(Limits{Most: 8 * gib, Start: 4 * gib}), walk, func(i int, d Decision) { targets = append(targets, d.Target) })
	if targets[0] != 4*gib || targets[len(targets)-1] != 6*gib {
		t.Errorf("targets from %d to %d, want from %d to %d", targets[0], targets[len(targets)-1], 4*gib, 6*gib)
	}
}

func TestTheMinimumIsNamedOnce(t *testing.T) {
	warnings := 0
	run(NewController(Limits{Most: 4 * gib, Least: gib}), []int64{4 * gib, gib / 2, gib / 4, gib / 2, 2 * gib, gib / 2}, func(i int, d Decision) {
		if d.Warn {
			warnings++
		}
		if d.Target < gib {
			t.Errorf("step %d: target %d is below the minimum", i, d.Target)
		}
	})
	if warnings != 2 {
		t.Errorf("%d warnings, want one for each time that the limit falls below the minimum", warnings)
	}
}

// TestStallsShortenTheInterval: PSI is a hint, which makes readings more frequent.
func TestStallsShortenTheInterval(t *testing.T) {
	c, now := NewController(Limits{Most: gib}), time.Unix(1000, 0)
	for i, s := range []struct {
		r    Reading
		want time.Duration
	}{
		{Reading{Stall: time.Hour}, calm}, // before this process began to look
		{Reading{Stall: time.Hour}, calm},
		{Reading{Stall: time.Hour + 50*time.Millisecond}, near},
		{Reading{Stall: time.Hour + 51*time.Millisecond}, calm},
		{Reading{Stall: time.Hour + 51*time.Millisecond, Held: 2 * gib}, near},
		{Reading{Stall: time.Hour + 51*time.Millisecond, Limit: gib / 2}, near}, // changed
		{Reading{Stall: time.Hour + 51*time.Millisecond, Limit: gib / 2}, calm},
	} {
		now = now.Add(100 * time.Millisecond)
		if d := c.Step(now, s.r); d.Next != s.want {
			t.Errorf("step %d: next reading in %v, want %v", i, d.Next, s.want)
		}
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	readings := 0
	Watch(ctx, NewController(Limits{Most: gib}), func() Reading { readings++; return Reading{Limit: gib / 2} }, func(d Decision) {
		if readings == 1 && (!d.Changed || d.Target != gib/2) {
			t.Errorf("first decision: %+v", d)
		}
		if readings == 3 {
			cancel()
		}
	})
	if readings != 3 {
		t.Errorf("%d readings, want 3", readings)
	}
}
