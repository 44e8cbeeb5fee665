package nn

import (
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
)

// guessing are weights that note which experts are guessed, and which are wanted after that.
type guessing struct {
	*random
	guessed, wanted map[*meta.Module][][]int32
	last            *meta.Module
}

func (w *guessing) Guesses(*meta.Module, []*meta.Param) bool { return true }

func (w *guessing) GuessExperts(m *meta.Module, experts []int32) {
	w.guessed[m] = append(w.guessed[m], slices.Clone(experts))
	w.last = m
}

func (w *guessing) WantExperts(m *meta.Module, experts []int32) {
	if m == w.last {
		w.wanted[m] = append(w.wanted[m], slices.Clone(experts))
	}
	w.random.WantExperts(m, experts)
}

func mixtures(b *meta.Builder, i int) {
	separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer = i })
	experts(b, meta.MoESpec{Count: 9, TopK: 3, Act: meta.ActSiLU}, false)
}

// TestGuessesAreWhatTheNextRouterChooses if the layers between add nothing to the hidden states. They change no bit.
func TestGuessesAreWhatTheNextRouterChooses(t *testing.T) {
	root := decoder(t, meta.CausalLMSpec{}, mixtures)
	plain := newRandom(root)
	for path, p := range root.AllParams() {
		if strings.HasPrefix(path, "layers.1.") && !strings.Contains(path, ".mlp.") && len(p.Shape) == 2 || path == "layers.0.mlp.experts.down" {
			clear(plain.values[p])
		}
	}
	w := &guessing{random: plain, guessed: map[*meta.Module][][]int32{}, wanted: map[*meta.Module][][]int32{}}
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8}
	logits := func(w Weights) (all [][]float32) {
		m := newMachine(t, root, w, Limits{Rows: 12, Outputs: 12}, 4)
		seq := m.cache.NewSequence(0)
		all = append(all, m.prompt(t, seq, tokens, 3))
		for _, id := range tokens[:4] {
			got := m.pass(t, nil, work{seq: seq, tokens: []int32{id}})
			all = append(all, slices.Clone(got.Row(0)))
		}
		return append(all, m.prompt(t, m.cache.NewSequence(0), tokens, len(tokens))) // which has too many rows to guess
	}
	want := logits(plain)
	for i, got := range logits(w) {
		sameBits(t, "logits with guesses", got, want[i])
	}
	stack := root.Find("layers.1.mlp.experts")
	if n := len(w.guessed[stack]); n != len(tokens)/3+4 || len(w.guessed) != 1 || len(w.wanted[stack]) != n+1 {
		t.Fatalf("guessed %d times for %d stacks, want %d for the second block alone", n, len(w.guessed), len(tokens)/3+4)
	}
	for i, guessed := range w.guessed[stack] {
		slices.Sort(guessed)
		if !slices.Equal(guessed, w.wanted[stack][i]) {
			t.Errorf("pass %d: guessed %v, and the router has chosen %v", i, guessed, w.wanted[stack][i])
		}
	}
}

// TestBlocksThatDoNotGuess: those whose router sees something else than hidden states behind a norm.
func TestBlocksThatDoNotGuess(t *testing.T) {
	for name, layer := range map[string]func(b *meta.Builder, i int){
		"parallel": func(b *meta.Builder, i int) {
			separate(preNorms(b, meta.BlockSpec{Parallel: true}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer = i })
			experts(b, meta.MoESpec{Count: 4, TopK: 2, Act: meta.ActSiLU}, false)
		},
		"no experts": func(b *meta.Builder, i int) {
			separate(preNorms(b, meta.BlockSpec{}), false, func(_ *meta.Builder, s *meta.AttentionSpec) { s.Layer = i })
			gated(b, "mlp")
		},
	} {
		p, err := Compile(decoder(t, meta.CausalLMSpec{}, layer))
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range p.Units {
			if s, ok := u.step.(*ruleStep); ok && s.rule.(*block).next != nil {
				t.Errorf("%s: %s guesses", name, u.Path)
			}
		}
	}
}
