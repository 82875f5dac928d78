import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # for training_example, which a subprocess also runs as a script
