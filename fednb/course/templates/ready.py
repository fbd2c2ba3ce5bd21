# Run this cell first: it executes the cells above on which the exercises build.
from fednb.course import prepare

prepare("{file}")
