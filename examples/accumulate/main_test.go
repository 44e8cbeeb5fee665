package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestExample(t *testing.T) {
	var b bytes.Buffer
	if err := write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	out := b.String()
	once := "  initial model weight is 0.00000\n  initial model weight is 0.00000\n  0 [1 2]\n  1 [3 4]\n  2 [5 6]\n  3 [7 8]\n" +
		"  w/ accumulation, the final model weight is 2.04000\n  w/o accumulation, the final model weight is 2.04000\n"
	if n := strings.Count(out, once); n != 2 {
		t.Errorf("%d models print what they should, want 2:\n%s", n, out)
	}
	if n := strings.Count(out, "weight is 2.04000"); n != 6 {
		t.Errorf("%d ways end with 2.04000, want 6:\n%s", n, out)
	}
	if !strings.Contains(out, "weight is 1.02000") {
		t.Errorf("a window cut short does not end with 1.02:\n%s", out)
	}
	_, table, ok := strings.Cut(out, "global batch 32, the same loss in every configuration\n")
	if !ok {
		t.Fatalf("no comparison:\n%s", out)
	}
	rows := strings.Split(strings.TrimSpace(table), "\n")
	rows = rows[1 : len(rows)-1] // between the heading and the largest difference
	want := strings.Fields(rows[0])[3:]
	for _, row := range rows {
		if got := strings.Fields(row)[3:]; len(rows) != 7 || !slices.Equal(got, want) {
			t.Errorf("configurations differ:\n%s", table)
		}
	}
}
