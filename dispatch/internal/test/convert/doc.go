// Package convert holds tests only: weights that package dispatch converts when it loads them stay within the tolerance of
// their format, and the files that keep converted weights change no bit of an answer, whatever fails meanwhile.
package convert
