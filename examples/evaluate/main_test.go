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
	var rows [][]string
	for _, line := range strings.Split(b.String(), "\n") {
		if f := strings.Fields(line); len(f) == 7 && strings.ContainsAny(f[0], "1234") {
			rows = append(rows, f)
		}
	}
	if len(rows) != 4 {
		t.Fatalf("%d rows, want 4:\n%s", len(rows), b.String())
	}
	for i, row := range rows {
		if row[2] != "101" || row[3] != rows[0][3] || row[4] != rows[0][4] {
			t.Errorf("row %d measures something else than the first:\n%s", i, b.String())
		}
		if repeated := i > 0; repeated != (row[1] > "101") {
			t.Errorf("%s ranks gathered %s samples", row[0], row[1])
		}
	}
}
