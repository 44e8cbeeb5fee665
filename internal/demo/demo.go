// Package demo holds the model that serve starts with when it is given none: a small
// llama with a tokenizer and a chat template, embedded in the binary.
//
// Its files lie in model/ as a Hugging Face folder and are made by the program in
// generate/, bit for bit the same on every machine. The weights are random: it shows
// the whole path, not good answers.
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
