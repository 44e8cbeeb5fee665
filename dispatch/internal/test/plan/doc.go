// Package plan tests where plans of package dispatch place weights, what they predict, and which
// changes they suggest.
package plan
