package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/heftai/heft/internal/testenv" // hides GPUs
)

const page, fixtures, models = "../../docs/models.md", "../../testdata/golden", "../../testdata/known"

// rewritten is the page as its command writes it.
var rewritten = sync.OnceValues(func() ([]byte, error) { return rewrite(page, fixtures, models) })

func TestModelsPageIsGenerated(t *testing.T) {
	want, err := rewritten()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/models.md is not what its command writes: run go generate ./meta")
	}
}

// TestEveryModelHasAFixture: a model type that no committed fixture shows is not claimed to be served.
// Some are the published names of others, see meta.TestPublishedTypesHaveTheTreesOfTransformers.
func TestEveryModelHasAFixture(t *testing.T) {
	text, err := rewritten()
	if err != nil {
		t.Fatal(err)
	}
	published := []string{"`kimi_k2`", "`vlm`", "`ernie4_5_moe_vl`", "`NemotronH_Nano_Omni_Reasoning_V3`"}
	for _, line := range strings.Split(string(text), "\n") {
		if cells := strings.Split(line, " | "); len(cells) == 4 && cells[2] == "–" && !slices.Contains(published, cells[1]) {
			t.Errorf("no fixture: %s", line)
		}
	}
}

// TestKnownModelsHaveTheirParameters: a config with a wrong field is found by its number of parameters.
func TestKnownModelsHaveTheirParameters(t *testing.T) {
	data, err := os.ReadFile(models + "/Qwen3-8B.json")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	wrong := bytes.Replace(data, []byte(`"intermediate_size": 12288`), []byte(`"intermediate_size": 11264`), 1)
	if err := os.WriteFile(folder+"/Qwen3-8B.json", wrong, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := knownModels(folder); err == nil || !strings.Contains(err.Error(), "7.74 billion parameters, want 8.19") {
		t.Errorf("with smaller MLPs: got %v", err)
	}
}
