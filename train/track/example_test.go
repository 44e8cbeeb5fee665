package track_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/heftai/heft/train/track"
)

// A tracker by name writes the metrics of a run, here one JSON object per line.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "run-*")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t, err := track.Open("jsonl", dir)
	if err != nil {
		log.Fatal(err)
	}
	for step, loss := range []float64{2.5, 1.25} {
		if err := t.Log(track.Values{"loss": loss}, step); err != nil {
			log.Fatal(err)
		}
	}
	if err := t.Close(); err != nil {
		log.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "metrics.jsonl"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(b))
	// Output:
	// {"loss":2.5,"step":0}
	// {"loss":1.25,"step":1}
}
