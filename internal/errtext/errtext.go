// Package errtext joins the texts of errors. An error begins with the name of the package that made it;
// [Below] leaves out a name that the text around the error has already.
package errtext

import "strings"

// Below returns err for a text that begins with name. The text of the result has no ": name:" and does
// not begin with "name:". The result wraps err. A nil err stays nil.
func Below(name string, err error) error {
	if err == nil {
		return nil
	}
	was := err.Error()
	text := was
	for strings.HasPrefix(text, name+": ") {
		text = text[len(name)+2:]
	}
	for again := ": " + name + ": "; strings.Contains(text, again); {
		text = strings.ReplaceAll(text, again, ": ")
	}
	if text == was {
		return err
	}
	return &below{err, text}
}

type below struct {
	error
	text string
}

func (e *below) Error() string { return e.text }
func (e *below) Unwrap() error { return e.error }
