// Package demo holds the model that serve starts with when it is given none: a small
// llama with a tokenizer and a chat template, embedded in the binary.
//
// Its files lie in model/ as a Hugging Face folder and are made by the program in
// generate/: config and tokenizer bit for bit the same on every machine, the weights by
// training on the texts in generate/text (make demo), which takes some of an hour. It
// greets, knows what Heft is and a few words of the field, jokes, adds small numbers, and
// says so where it knows nothing.
package demo

import (
	"embed"
	"io/fs"
)

//go:generate go run ./generate -o model

//go:embed model
var files embed.FS

// Name is the name under which the demo model is served.
const Name = "heft-demo"

// Files is the model's folder: config.json, model.safetensors, tokenizer.json and
// what belongs to them.
func Files() fs.FS {
	sub, err := fs.Sub(files, "model")
	if err != nil {
		panic(err) // the path is a constant that embed has checked
	}
	return sub
}
