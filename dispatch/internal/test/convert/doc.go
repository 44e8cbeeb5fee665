// Package convert tests that weights which package dispatch converts when it loads them stay
// within the tolerance of their format. It also tests that the files of converted weights do not
// change a bit of an answer, whatever fails meanwhile.
package convert
