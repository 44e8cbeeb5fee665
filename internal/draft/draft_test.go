package draft

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// The longest agreement is found, later places go before earlier ones, and what follows is copied.
func TestLookupFindsWhatFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		text  []int32
		match int
		want  []int32
	}{
		"nothing repeats": {[]int32{1, 2, 3, 4}, 0, nil},
		"one token":       {[]int32{1, 2, 3, 2}, 0, nil},
		"two":             {[]int32{7, 1, 2, 3, 4, 9, 1, 2}, 2, []int32{3, 4, 9, 1}},
		"the later":       {[]int32{7, 1, 2, 3, 8, 1, 2, 5, 9, 1, 2}, 2, []int32{5, 9, 1, 2}},
		"the longer":      {[]int32{7, 6, 1, 2, 3, 5, 8, 1, 2, 5, 7, 6, 1, 2}, 4, []int32{3, 5, 8, 1}},
		"a period":        {[]int32{5, 1, 2, 1, 2, 1, 2}, 4, []int32{1, 2, 1, 2}},
		"one, repeated":   {[]int32{5, 1, 1, 1}, 2, []int32{1, 1, 1, 1}},
	} {
		var l Lookup
		at, match := l.Find(c.text, c.text)
		var got []int32
		if match > 0 {
			got = Follow(nil, c.text, at, 4, true)
		}
		if match != c.match || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v after %d agreeing tokens, want %v after %d", name, got, match, c.want, c.match)
		}
	}
	var l Lookup
	source, text := []int32{1, 2, 3, 4, 5}, []int32{9, 2, 3}
	if at, match := l.Find(source, text); match != 2 || !slices.Equal(Follow(nil, source, at, 4, false), []int32{4, 5}) {
		t.Errorf("in another text: place %d, %d agreeing", at, match)
	}
}

// Where a token was replaced, what followed the replaced one is a guess, for a few tokens.
func TestLookupGoesOnBehindAReplacedToken(t *testing.T) {
	text := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 1, 2, 3}
	var l Lookup
	if at, match := l.Find(text, text); at != 3 || match != 3 {
		t.Fatalf("place %d, %d agreeing, want place 3 and 3", at, match)
	}
	for i := range int32(resumes) {
		text = append(text, 90+i)
		if at, match := l.Find(text, text); at != int(4+i) || match != 1 {
			t.Fatalf("%d tokens replaced: place %d, %d agreeing, want place %d and 1", i+1, at, match, 4+i)
		}
	}
	text = append(text, 99)
	if at, match := l.Find(text, text); match != 0 {
		t.Errorf("place %d, %d agreeing, after as many as another text", at, match)
	}
}

// A predicted text is a guess from its beginning on.
func TestLookupBeginsWithAPrediction(t *testing.T) {
	var l Lookup
	prediction, text := []int32{5, 6, 7, 8}, []int32{1, 2, 3}
	l.Begin(len(text))
	if at, match := l.Find(prediction, text); at != 0 || match != 1 {
		t.Errorf("place %d, %d agreeing, want the beginning and 1", at, match)
	}
	if at, match := l.Find(prediction, append(text, 5)); at != 1 || match != 1 {
		t.Errorf("place %d, %d agreeing, want place 1 and 1", at, match)
	}
}

// A text that grows is found in as one that is there at once, and Reset forgets it.
func TestLookupGrowsWithItsText(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var grown Lookup
	text := make([]int32, 600)
	for i := range text {
		text[i] = r.Int32N(5)
		var whole Lookup
		a, n := grown.Find(text[:i+1], text[:i+1])
		if b, m := whole.Find(text[:i+1], text[:i+1]); n > 1 && (a != b || n != m) {
			t.Fatalf("%d tokens: place %d, %d agreeing; at once place %d, %d agreeing", i+1, a, n, b, m)
		}
	}
	grown.Reset()
	if _, n := grown.Find([]int32{1, 2}, []int32{1, 2}); n != 0 {
		t.Errorf("%d tokens agree after Reset", n)
	}
}

func TestOddsFollowTheText(t *testing.T) {
	var all, o Odds
	if p := o.Of(Agreeing(20), nil); !(math.Abs(p-first[4]) <= 1e-9) {
		t.Errorf("%v before anything is known, want %v", p, first[4])
	}
	for range 100 {
		all.Note(Agreeing(2), true)
	}
	if p := o.Of(Agreeing(2), &all); p < 0.9 {
		t.Errorf("%v where all guesses of other texts were right", p)
	}
	for range 100 {
		o.Note(Agreeing(2), false)
	}
	if p := o.Of(Agreeing(2), &all); p > 0.1 {
		t.Errorf("%v where all guesses were wrong", p)
	}
	if p := o.Of(Agreeing(20), &all); !(math.Abs(p-first[4]) <= 1e-9) {
		t.Errorf("%v for longer agreement, want %v: nothing is known of it", p, first[4])
	}
}

// decided is how many guesses Decide takes of sure ones, after costs of some passes are known.
func decided(costs *Costs, match, guesses int) int {
	offers := []Offer{{Tokens: make([]int32, guesses), Chances: slices.Repeat([]float64{first[Agreeing(match)]}, guesses)}}
	Decide(costs, 1, 1, 100, offers)
	return offers[0].Take
}

func record(c *Costs, n, times int, d time.Duration) {
	for range times {
		c.Record(n, d)
	}
}

// Passes that read as long for many tokens take all guesses, by and by; passes whose time grows with
// the tokens take none, after they were tried.
func TestDecideTakesWhatPays(t *testing.T) {
	var flat Costs
	if n := decided(&flat, 20, 15); n != 0 {
		t.Errorf("%d guesses before a pass was measured", n)
	}
	record(&flat, 1, enough, time.Second)
	n := decided(&flat, 20, 15)
	if n < 1 || n > 3 {
		t.Errorf("%d guesses in the first pass that has any, want a careful number", n)
	}
	for range 6 {
		flat.Record(1+n, time.Second)
		n = decided(&flat, 20, 15)
	}
	if n != 15 {
		t.Errorf("%d of 15 guesses where they cost nothing", n)
	}
	var steep Costs
	record(&steep, 1, enough, time.Second)
	for tries := 0; ; tries++ {
		n := decided(&steep, 20, 15)
		if n == 0 {
			break
		}
		if tries == 2 {
			t.Fatalf("%d guesses after %d passes in which each token cost as much as a pass", n, tries)
		}
		steep.Record(1+n, time.Duration(1+n)*time.Second)
	}
}

// An offer with better odds goes first, and the total is bounded.
func TestDecideTakesTheLikeliestFirst(t *testing.T) {
	var costs Costs
	record(&costs, 2, enough, time.Second)
	record(&costs, 16, enough, time.Second)
	offers := []Offer{{Tokens: make([]int32, 3), Chances: []float64{0.1, 1, 1}}, {Tokens: make([]int32, 3), Chances: []float64{0.9, 0.9, 0.9}}}
	Decide(&costs, 2, 2, 3, offers)
	if offers[0].Take != 0 || offers[1].Take != 3 {
		t.Errorf("%d and %d guesses, want all 3 of the second", offers[0].Take, offers[1].Take)
	}
}

// A duration that was measured at a bad moment does not decide for ever.
func TestASlowPassDecidedForEver(t *testing.T) {
	var c Costs
	record(&c, 1, enough, time.Second)
	c.Record(2, time.Minute)
	c.Record(3, time.Minute)
	if n := decided(&c, 20, 15); n != 0 {
		t.Fatalf("%d guesses where two tokens take a minute", n)
	}
	record(&c, 1, stale+1, time.Second)
	if n := decided(&c, 20, 15); n == 0 {
		t.Error("no guesses long after")
	}
}

// A draft model is used if its passes are short compared with those of the model, and no longer if its
// guesses are seldom right. Texts that are asked for together share its pass.
func TestWorthOfADraftModel(t *testing.T) {
	var c Costs
	if Worth(&c, 1, 1, []float64{1}, 0) != 0 {
		t.Error("before a pass was measured")
	}
	record(&c, 1, enough, time.Second)
	record(&c, 4, enough, time.Second)
	for _, w := range []struct {
		base    int
		chances []float64
		draft   float64
		want    int
	}{
		{1, []float64{0.8}, 0.1, 1}, {1, []float64{0.05}, 0.1, 0}, {1, []float64{0.8}, 0.9, 0},
		{4, []float64{0.8}, 0.3, 0}, {4, []float64{0.8, 0.8, 0.8, 0.8}, 0.3, 4}, {4, []float64{0.9, 0.9, 0.9, 0}, 0.3, 3},
	} {
		if got := Worth(&c, w.base, w.base, w.chances, w.draft); got != w.want {
			t.Errorf("chances %v for %v of a pass: %d texts, want %d", w.chances, w.draft, got, w.want)
		}
	}
}

func TestNothingIsAllocated(t *testing.T) {
	text := make([]int32, 1000)
	for i := range text {
		text[i] = int32(i % 50)
	}
	var l Lookup
	l.Find(text[:1], text[:1])
	guess := make([]int32, 0, MaxTokens)
	var costs Costs
	record(&costs, 1, 9, time.Second)
	offers := make([]Offer, 1)
	odds, chances := &Odds{}, slices.Repeat([]float64{0.9}, MaxTokens)
	i := 1
	if n := testing.AllocsPerRun(900, func() {
		i++
		at, match := l.Find(text[:i], text[:i])
		offers[0] = Offer{Tokens: Follow(guess, text[:i], at, MaxTokens, true), Chances: chances}
		Decide(&costs, 1, 1, 15, offers)
		odds.Note(Agreeing(match), true)
		costs.Record(1+offers[0].Take, time.Second)
	}); n != 0 {
		t.Errorf("%v allocations for a token", n)
	}
}

func BenchmarkFind(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	text := make([]int32, 20000)
	for i := range text {
		text[i] = r.Int32N(3000)
	}
	var l Lookup
	for b.Loop() {
		l.Reset()
		for i := range text {
			l.Find(text[:i+1], text[:i+1])
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(text)), "ns/token")
}
