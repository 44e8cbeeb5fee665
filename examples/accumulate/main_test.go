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
	if n := strings.Count(out, "weight is 2.04000"); n != 4 {
		t.Errorf("%d ways end with 2.04000, want 4:\n%s", n, out)
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
