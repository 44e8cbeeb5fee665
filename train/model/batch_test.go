package model

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heftai/heft/meta"
	"github.com/heftai/heft/train/tensor"
)

// paddedBatch puts texts into rows of one length, with padding before or behind them, or a token of
// padding behind each one.
func paddedBatch(texts [][]int, where string) Batch {
	b := Batch{}
	for _, text := range texts {
		b.Length = max(b.Length, 2*len(text))
	}
	for _, text := range texts {
		row, mask := make([]int, b.Length), make([]bool, b.Length)
		for i, id := range text {
			at := map[string]int{"right": i, "left": b.Length - len(text) + i, "between": 2 * i}[where]
			row[at], mask[at] = id, true
		}
		b.IDs, b.Mask = append(b.IDs, row...), append(b.Mask, mask...)
	}
	return b
}

// packedBatch puts texts into two rows, with segments or positions that say where they begin.
func packedBatch(texts [][]int, positions bool) Batch {
	var ids, marks [2][]int
	for i, text := range texts {
		row := 0
		if len(ids[0])+len(text) > 16 {
			row = 1
		}
		ids[row] = append(ids[row], text...)
		for j := range text {
			mark := i
			if positions {
				mark = j
			}
			marks[row] = append(marks[row], mark)
		}
	}
	b := Batch{IDs: slices.Concat(ids[0], ids[1]), Length: 16}
	if positions {
		b.Positions = slices.Concat(marks[0], marks[1])
	} else {
		b.Segments = slices.Concat(marks[0], marks[1])
	}
	return b
}

// TestTextsOfEveryKind: texts in rows with padding anywhere, or packed into rows, have the loss and the
// gradients that transformers computes for each text by itself.
func TestTextsOfEveryKind(t *testing.T) {
	eachBatch(t, func(t *testing.T, dir string, g *batchGolden) {
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.SetAuxiliary(0)
		sum := Options{CrossEntropyOptions: tensor.CrossEntropyOptions{Reduction: tensor.Sum}}
		batches := map[string]Batch{"segments": packedBatch(g.Texts.Texts, false), "positions": packedBatch(g.Texts.Texts, true)}
		right := paddedBatch(g.Texts.Texts, "right")
		right.Labels = slices.Clone(right.IDs)
		for i, in := range right.Mask {
			if !in {
				right.Labels[i] = tensor.IgnoreIndex
			}
		}
		batches["right"], batches["left"] = right, paddedBatch(g.Texts.Texts, "left")
		for name, b := range batches {
			for _, recompute := range []bool{false, true} {
				o := sum
				o.Recompute = recompute
				tp := tensor.NewTape(tensor.Options{})
				loss, err := m.Loss(tp, b, o)
				if err != nil {
					t.Fatal(err)
				}
				if d := math.Abs(float64(loss.Item())/g.Texts.Loss - 1); !(d < 2e-6) {
					t.Errorf("%s: loss is %v, transformers' %v", name, loss.Item(), g.Texts.Loss)
				}
				if err := tp.Backward(loss, 1); err != nil {
					t.Fatal(err)
				}
				checkPairs(t, m, g.Texts.Gradients)
			}
		}
		if filepath.Base(dir) != "llama4" { // transformers scales its queries by the column instead of the position
			checkLeft(t, m, g)
		}
	})
}

// checkLeft compares the logits of rows that are padded on the left, whose last id is a token, and
// those of rows with padding between tokens.
func checkLeft(t *testing.T, m *Model, g *batchGolden) {
	tp := tensor.NewTape(tensor.Options{})
	for _, where := range []string{"left", "between"} {
		b := paddedBatch(g.Texts.Texts, where)
		logits, err := m.Logits(tp, b)
		if err != nil {
			t.Fatal(err)
		}
		var states []*tensor.Tensor
		if g.Hidden != nil {
			if states, err = m.AllHiddenStates(tp, b, Options{}); err != nil {
				t.Fatal(err)
			}
		}
		for i, text := range g.Texts.Texts {
			at := (i + 1) * b.Length
			if where == "between" {
				at += 2*len(text) - 1 - b.Length
			}
			checkPair(t, where+" logits", logits.Data()[(at-1)*m.spec.Vocab:][:m.spec.Vocab], g.Left[i])
		}
		for i, in := range b.Mask {
			for _, s := range append(states, logits) {
				width := s.Len() / len(b.IDs)
				if !in && slices.ContainsFunc(s.Data()[i*width:][:width], func(v float32) bool { return v != 0 }) {
					t.Fatalf("%s: padding %d has values %v", where, i, s.Data()[i*width:][:width])
				}
			}
		}
	}
}

// TestRoutersLossOfEveryKind compares the loss of padded texts with transformers'
// load_balancing_loss_func and its attention mask.
func TestRoutersLossOfEveryKind(t *testing.T) {
	cases := 0
	eachBatch(t, func(t *testing.T, dir string, g *batchGolden) {
		if g.Router == nil {
			return // transformers has no routers' loss for it
		}
		cases++
		m, err := openFile(t, dir, dir)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		m.SetAuxiliary(0.5)
		b := paddedBatch(g.Texts.Texts, "right")
		b.Labels = slices.Clone(b.IDs)
		for i, in := range b.Mask {
			if !in || i%b.Length == 0 {
				b.Labels[i] = tensor.IgnoreIndex
			}
		}
		tp := tensor.NewTape(tensor.Options{})
		loss, err := m.Loss(tp, b, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if d := math.Abs(float64(loss.Item()) - g.Router.Loss); !(d < 5e-6) {
			t.Errorf("loss is %v, transformers' %v of which %v are the routers'", loss.Item(), g.Router.Loss, g.Router.Auxiliary)
		}
		if err := tp.Backward(loss, 1); err != nil {
			t.Fatal(err)
		}
		checkPairs(t, m, g.Router.Gradients)
	})
	if cases < 5 {
		t.Errorf("got %d families with a routers' loss, want at least 5", cases)
	}
}

// TestLossesOfRowsSkipPadding: without a reduction, losses and their gradients are where the tokens are.
func TestLossesOfRowsSkipPadding(t *testing.T) {
	dir := ownModel(t, "gpt-oss")
	m, err := openFile(t, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	texts := [][]int{{5, 9, 4}, {7, 30, 12, 8, 21}}
	o := Options{CrossEntropyOptions: tensor.CrossEntropyOptions{Reduction: tensor.None}}
	b := paddedBatch(texts, "left")
	tp := tensor.NewTape(tensor.Options{})
	losses, err := m.Loss(tp, b, o)
	if err != nil {
		t.Fatal(err)
	}
	by := make([]float32, len(b.IDs))
	for i := range by {
		by[i] = float32(i%3) - 0.7
	}
	if err := tp.Backward(tp.Sum(tp.Mul(losses, tp.Input(by, losses.Shape()...))), 1); err != nil {
		t.Fatal(err)
	}
	got := named(t, m.Gradients)
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
	for r, text := range texts {
		alone, err := m.Loss(tp, someBatch(text...), o)
		if err != nil {
			t.Fatal(err)
		}
		begin := (r+1)*b.Length - len(text)
		near(t, "losses", losses.Data()[begin:(r+1)*b.Length], alone.Data(), 1e-5)
		for i, v := range losses.Data()[r*b.Length : begin] {
			if v != 0 {
				t.Errorf("row %d: loss %g at padding %d", r, v, i)
			}
		}
		if err := tp.Backward(tp.Sum(tp.Mul(alone, tp.Input(by[begin:(r+1)*b.Length], alone.Shape()...))), 1); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range named(t, m.Gradients) {
		near(t, name, got[name], want, 2e-5)
	}
}

// TestLongTextsArePagesOfTheirOwn: texts of very different lengths use pages of a fixed size.
func TestLongTextsArePagesOfTheirOwn(t *testing.T) {
	cfg, err := meta.ReadConfig([]byte(`{"model_type": "mistral", "vocab_size": 20, "hidden_size": 16, "intermediate_size": 24,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "sliding_window": 70}`))
	if err != nil {
		t.Fatal(err)
	}
	skeleton, err := meta.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(skeleton)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for i, p := range m.Parameters() {
		for j := range p.Data() {
			p.Data()[j] = float32(math.Sin(float64(len(i)*7+j*j%97))) / 3
		}
	}
	b := Batch{Length: 220}
	var texts []Batch
	for n, length := range []int{150, 2, 68} {
		one := Batch{Length: length}
		for i := range length {
			one.IDs = append(one.IDs, (i*i+n)%20)
			b.IDs, b.Segments = append(b.IDs, one.IDs[i]), append(b.Segments, n)
		}
		texts = append(texts, one)
	}
	if tokens, n := b.layout().pages(); tokens != textPage || n != 6 {
		t.Errorf("got %d pages of %d tokens, want 6 of %d", n, tokens, textPage)
	}
	sum := 0.0
	for _, one := range texts {
		sum += reversedSum(t, m, one)
	}
	want := named(t, m.Gradients)
	for _, p := range m.Parameters() {
		p.ZeroGrad()
	}
	if got := reversedSum(t, m, b); !(math.Abs(got-sum) <= 1e-4*sum) {
		t.Errorf("packed texts have loss %v, want %v", got, sum)
	}
	for name, g := range named(t, m.Gradients) {
		near(t, name, g, want[name], 1e-4)
	}
}

// reversedSum returns the sum of a batch's losses and adds its gradients.
func reversedSum(t *testing.T, m *Model, b Batch) float64 {
	t.Helper()
	tp := tensor.NewTape(tensor.Options{})
	loss, err := m.Loss(tp, b, Options{CrossEntropyOptions: tensor.CrossEntropyOptions{Reduction: tensor.Sum}})
	if err != nil {
		t.Fatal(err)
	}
	sum := float64(loss.Item())
	if err := tp.Backward(loss, 1); err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestBadTexts: batches whose masks, segments or positions do not fit.
func TestBadTexts(t *testing.T) {
	m, err := New(skeleton(t, `"model_type": "llama"`))
	if err != nil {
		t.Fatal(err)
	}
	for want, b := range map[string]Batch{
		"a mask of 1 entries for 2 ids":     {IDs: []int{1, 2}, Length: 2, Mask: []bool{true}},
		"segments of 3 entries for 2 ids":   {IDs: []int{1, 2}, Length: 2, Segments: []int{1, 1, 2}},
		"positions of 1 entries for 2 ids":  {IDs: []int{1, 2}, Length: 2, Positions: []int{1}},
		"position 16 of id 1, want 0 to 15": {IDs: []int{1, 2}, Length: 2, Positions: []int{1, 16}},
		"position -1 of id 0":               {IDs: []int{1, 2}, Length: 2, Positions: []int{-1, 0}},
		"padding only":                      {IDs: []int{1, 2}, Length: 2, Mask: []bool{false, false}},
	} {
		if _, err := m.HiddenStates(tensor.NewTape(tensor.Options{}), b, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	long := Batch{IDs: make([]int, 40), Length: 40}
	for i := range long.IDs {
		long.Segments = append(long.Segments, i/10)
	}
	if _, err := m.HiddenStates(tensor.NewTape(tensor.Options{}), long, Options{}); err != nil {
		t.Errorf("texts of 10 tokens in a row of 40: %v", err)
	}
}
