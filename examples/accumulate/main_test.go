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
	if n := strings.Count(out, "weight is 2.04000"); n != 4 {
		t.Errorf("%d ways end with 2.04000, want 4:\n%s", n, out)
	}
	if !strings.Contains(out, "weight is 1.02000") {
		t.Errorf("a window cut short does not end with 1.02:\n%s", out)
	}
	_, table, _ := strings.Cut(out, "weight\n")
	rows := strings.Split(strings.TrimSpace(table), "\n")
	for _, row := range rows {
		f, want := strings.Fields(row), strings.Fields(rows[0])
		if len(rows) != 7 || f[3] != want[3] || f[4] != want[4] {
			t.Errorf("configurations differ:\n%s", table)
		}
	}
}
