"""Long reductions of few outputs, split over blocks or cores."""
