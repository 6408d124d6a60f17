//go:build !race

package app

var chaosFlags []string
