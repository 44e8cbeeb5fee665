package errtext

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestBelowLeavesOutNames(t *testing.T) {
	for text, want := range map[string]string{
		"train: trainer: no data":               "trainer: no data",
		"train: train: no data":                 "no data",
		"rank 1: train: train: prepare: a file": "rank 1: prepare: a file",
		"rank 1: trains: a file":                "rank 1: trains: a file",
		"training: a file":                      "training: a file",
		"/data/train: a file":                   "/data/train: a file",
	} {
		err := fmt.Errorf("%s: %w", text, io.EOF)
		if got := Below("train", err); got.Error() != want+": EOF" || !errors.Is(got, io.EOF) {
			t.Errorf("got %q, want %q", got, want+": EOF")
		}
	}
	if Below("train", nil) != nil {
		t.Error("an error was made of none")
	}
}
