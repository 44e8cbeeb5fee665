// Command supported writes the tables of supported models into docs/models.md, between the two
// comments that mark their place: meta's own tables, and the committed fixtures that show each row.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heftai/heft/internal/atomicfile"
	"github.com/heftai/heft/meta"
)

const (
	begin = "<!-- supported: begin (go generate ./meta) -->\n"
	end   = "<!-- supported: end -->"
)

func main() {
	log.SetFlags(0)
	page := flag.String("page", "docs/models.md", "file to rewrite")
	fixtures := flag.String("fixtures", "testdata/golden", "folder of the committed fixtures")
	flag.Parse()
	text, err := rewrite(*page, *fixtures)
	if err == nil {
		err = atomicfile.WriteFile(*page, text)
	}
	if err != nil {
		log.Fatal("supported: ", err)
	}
}

// rewrite returns the page with the tables of now.
func rewrite(page, fixtures string) ([]byte, error) {
	text, err := os.ReadFile(page)
	if err != nil {
		return nil, err
	}
	from, to := bytes.Index(text, []byte(begin)), bytes.Index(text, []byte(end))
	if from < 0 || to < from {
		return nil, fmt.Errorf("%s has no place for the tables", page)
	}
	served, err := namesByType(filepath.Join(fixtures, "infer", "models"))
	if err != nil {
		return nil, err
	}
	trained, err := namesByType(filepath.Join(fixtures, "train", "gradients"))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(text[:from])
	out.WriteString(begin)
	for _, wrapper := range []bool{false, true} {
		table(&out, wrapper, served, trained)
	}
	out.Write(text[to:])
	return out.Bytes(), nil
}

// table writes the text models, or the models that have other inputs as well.
func table(out *bytes.Buffer, wrapper bool, served, trained map[string][]string) {
	if wrapper {
		out.WriteString("\nOf models with images, the text is served:\n\n")
	}
	out.WriteString("| architecture | `model_type` | logits, LoRA: `infer/models/` | gradients: `train/gradients/` |\n|---|---|---|---|\n")
	for _, t := range meta.Architectures() {
		if meta.IsWrapper(t) == wrapper {
			fmt.Fprintf(out, "| %s | `%s` | %s | %s |\n", meta.RootClass(t), t, list(served[t]), list(trained[t]))
		}
	}
}

func list(names []string) string {
	if len(names) == 0 {
		return "–"
	}
	return strings.Join(names, ", ")
}

// namesByType returns the folders with a config.json, by their model_type.
func namesByType(folder string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*", "config.json"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no fixtures in %s: %w", folder, err)
	}
	slices.Sort(files)
	names := map[string][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config, err := meta.ReadConfig(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		names[config.ModelType] = append(names[config.ModelType], filepath.Base(filepath.Dir(file)))
	}
	return names, nil
}
