package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	for _, want := range []string{
		"1 rank(s), by epochs: 16 micro steps each, a schedule of 16 steps, 4 batches a window",
		"2 rank(s), by epochs: 8 micro steps each, a schedule of 16 steps, 4 batches a window",
		"2 rank(s), by steps: 8 micro steps each, a schedule of 16 steps, 4 batches a window",
		"real_batch_size must be divisible by the batch size of all ranks together: 10 by 3",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing:\n%s", want, out)
		}
	}
	// Each run ends with the rate at 0, the schedule having moved with every batch of all ranks.
	for _, last := range []string{"0.00000        16\n"} {
		if n := strings.Count(out, last); n != 3 {
			t.Errorf("%d runs end the schedule, want 3:\n%s", n, out)
		}
	}
	// Weights move in a window's last batch only.
	var norms []string
	_, table, _ := strings.Cut(out, "next lr  schedule\n")
	for _, line := range strings.Split(table, "\n")[:16] {
		f := strings.Fields(line)
		norms = append(norms, f[len(f)-3])
	}
	for i := 1; i < len(norms)-1; i++ { // at a rate of 0 the last one stays
		if moved := norms[i] != norms[i-1]; moved != (i%window == window-1) {
			t.Errorf("step %d: the weights moved: %v\n%s", i, moved, out)
		}
	}
}
