// Package demo embeds the demo model: a llama of two million parameters with a tokenizer and a
// chat template, in 4.3 MB. The serve command starts with it when it is given no model, and Heft's
// examples run on it:
//
//	model, err := dispatch.OpenFS(demo.Name, demo.Files(), dispatch.Options{})
//
// It greets, knows what Heft is and a few words of the field, jokes, adds small numbers, and says
// so where it knows nothing. Its files have the layout of a Hugging Face folder. A program that
// does not import this package does not contain them.
package demo

import (
	"embed"
	"io/fs"
)

// The files are made by a program in internal/demo/generate: config and tokenizer bit for bit the
// same on every machine, the weights by training (make demo), which takes about an hour.
//
//go:generate go run ../../internal/demo/generate -o model

//go:embed model
var files embed.FS

// Name is the name under which the demo model is served.
const Name = "heft-demo"

// Files returns the model's folder: config.json, model.safetensors, tokenizer.json and other
// files. It is safe for concurrent use.
func Files() fs.FS {
	sub, err := fs.Sub(files, "model")
	if err != nil {
		panic(err) // the path is a constant that embed has checked
	}
	return sub
}
