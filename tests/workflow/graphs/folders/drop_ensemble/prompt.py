AGAIN = " Look again."
